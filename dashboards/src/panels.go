package main

import (
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/heatmap"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/statetimeline"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// The width of a dashboard in columns, and the room that all panels with a time axis leave for the other
// axis in pixels, so that their times are aligned.
const (
	fullWidth = 24
	halfWidth = 12
	axisWidth = 90
)

func list() *common.VizLegendOptionsBuilder {
	return common.NewVizLegendOptionsBuilder().
		DisplayMode(common.LegendDisplayModeList).
		Placement(common.LegendPlacementBottom).
		ShowLegend(true)
}

func allOfThem() *common.VizTooltipOptionsBuilder {
	return common.NewVizTooltipOptionsBuilder().
		Mode(common.TooltipDisplayModeMulti).
		Sort(common.SortOrderDescending)
}

// at returns a place in the grid, in columns and rows.
func at(x, y, width, height uint32) dashboard.GridPos {
	return dashboard.GridPos{X: x, Y: y, W: width, H: height}
}

// lines returns a time series panel whose value axis begins at zero.
func lines(title, description, unit string, queries ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	return curves(title, description, unit, queries...).Min(0)
}

// curves returns a time series panel whose value axis covers only the values present.
func curves(title, description, unit string, queries ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	panel := timeseries.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(dataSource()).
		Height(7).Span(fullWidth).
		Interval(scrapeInterval).
		Unit(unit).
		AxisWidth(axisWidth).
		LineWidth(1).
		FillOpacity(8).
		ShowPoints(common.VisibilityModeAuto).
		Thresholds(thresholds(green)).
		Legend(list()).
		Tooltip(allOfThem())
	for _, query := range queries {
		panel.WithTarget(query)
	}
	return panel
}

// inColours gives each series the colour of its name.
func inColours(panel *timeseries.PanelBuilder, series []state) *timeseries.PanelBuilder {
	for _, one := range series {
		panel.OverrideByName(one.name, []dashboard.DynamicConfigValue{fixedColour(one.colour)})
	}
	return panel
}

// guide is the style of a line that others are compared with: dashed, and in one colour.
func guide(colour string) []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{
		fixedColour(colour),
		property("custom.lineStyle", map[string]any{"fill": "dash", "dash": []int{10, 10}}),
		property("custom.lineWidth", 1),
		property("custom.fillOpacity", 0),
		property("custom.stacking", map[string]any{"mode": "none", "group": "A"}),
	}
}

// dashed draws the thresholds of a time series panel into it.
func dashed() *common.GraphThresholdsStyleConfigBuilder {
	return common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed)
}

func stacked() *common.StackingConfigBuilder {
	return common.NewStackingConfigBuilder().Mode(common.StackingModeNormal).Group("A")
}

// buckets returns a heat map of a histogram, with the histogram's own bounds.
func buckets(title, description, unit string, query *prometheus.DataqueryBuilder) *heatmap.PanelBuilder {
	return heatmap.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(dataSource()).
		Height(8).Span(fullWidth).
		Interval(scrapeInterval).
		Unit("short").
		Thresholds(thresholds(green)).
		Calculate(false).
		// Both ends of this scheme are visible on a dark and on a light background.
		Color(heatmap.NewHeatmapColorOptionsBuilder().
			Mode(heatmap.HeatmapColorModeScheme).
			Scheme("Oranges").
			Scale(heatmap.HeatmapColorScaleExponential).
			Exponent(0.5).
			Steps(64)).
		CellGap(1).
		CellValues(heatmap.NewCellValuesBuilder().Unit("cps")).
		// Leaves out cells without calls.
		FilterValues(heatmap.NewFilterValueRangeBuilder().Le(1e-9)).
		RowsFrame(heatmap.NewRowsHeatmapOptionsBuilder().Layout(common.HeatmapCellLayoutLe)).
		YAxis(heatmap.NewYAxisConfigBuilder().
			Unit(unit).
			AxisPlacement(common.AxisPlacementLeft).
			AxisWidth(axisWidth)).
		Tooltip(heatmap.NewHeatmapTooltipBuilder().
			Mode(common.TooltipDisplayModeSingle).
			YHistogram(true).
			ShowColorScale(true)).
		ShowLegend().
		WithTarget(query)
}

// state is a value with a name and a colour.
type state struct {
	value, name, colour string
}

func mapping(states []state) []dashboard.ValueMapping {
	options := map[string]dashboard.ValueMappingResult{}
	for i, state := range states {
		options[state.value] = dashboard.ValueMappingResult{
			Text: pointer(state.name), Color: pointer(state.colour), Index: pointer(int32(i)),
		}
	}
	return []dashboard.ValueMapping{{
		ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options},
	}}
}

// timeline returns a panel of states over time.
func timeline(title, description string, states []state, queries ...*prometheus.DataqueryBuilder) *statetimeline.PanelBuilder {
	panel := statetimeline.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(dataSource()).
		Height(5).Span(fullWidth).
		Interval(scrapeInterval).
		Unit("none").
		Mappings(mapping(states)).
		Thresholds(thresholds(green)).
		AxisWidth(axisWidth).
		MergeValues(true).
		ShowValue(common.VisibilityModeAuto).
		RowHeight(0.8).
		FillOpacity(80).
		LineWidth(0).
		Legend(list()).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeSingle))
	for _, query := range queries {
		panel.WithTarget(query)
	}
	return panel
}

// number returns a single value, from an instant query. With more queries, it has one for each, with their names.
func number(title, description, unit string, steps *dashboard.ThresholdsConfigBuilder, queries ...*prometheus.DataqueryBuilder) *stat.PanelBuilder {
	panel := stat.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(dataSource()).
		Unit(unit).
		Thresholds(steps).
		ColorMode(common.BigValueColorModeValue).
		GraphMode(common.BigValueGraphModeNone).
		TextMode(common.BigValueTextModeAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
	for _, query := range queries {
		panel.WithTarget(query.Instant())
	}
	return panel
}

// forEach gives each of these values the properties.
func forEach(panel *stat.PanelBuilder, names []string, properties ...dashboard.DynamicConfigValue) *stat.PanelBuilder {
	for _, name := range names {
		panel.OverrideByName(name, properties)
	}
	return panel
}

// column is a column of a table that merges several queries.
type column struct {
	// field is the label, or `Value #A` for the value of query A.
	field, name string
	properties  []dashboard.DynamicConfigValue
}

// link leads from a cell to a dashboard, in the same time range, with these columns as its variables.
func link(title, uid string, columns ...string) dashboard.DynamicConfigValue {
	url := "/d/" + uid + "?${__url_time_range}&${datasource:queryparam}"
	if cluster != "" {
		columns = append(columns, "Cluster")
	}
	for _, column := range columns {
		url += "&var-" + strings.ToLower(column) + "=${__data.fields." + column + ":percentencode}"
	}
	return property("links", []map[string]any{{"title": title, "url": url, "targetBlank": false}})
}

// rows returns a table that merges the answers of its queries: answers with the same labels become one row. The columns
// come in this order, and the hidden fields are left out.
func rows(title, description string, columns []column, hidden []string, queries ...*prometheus.DataqueryBuilder) *table.PanelBuilder {
	order, names, left := map[string]int{}, map[string]string{}, map[string]bool{}
	for i, column := range columns {
		order[column.field] = i
		names[column.field] = column.name
	}
	for _, field := range hidden {
		left[field] = true
	}
	panel := table.NewPanelBuilder().
		Title(title).
		Description(description).
		Datasource(dataSource()).
		Height(9).Span(fullWidth).
		Interval(scrapeInterval).
		Unit("none").
		Thresholds(thresholds(green)).
		Filterable(true).
		ShowHeader(true).
		// There is no footer, but the schema requires the field.
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{})).
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"indexByName": order, "renameByName": names, "excludeByName": left, "includeByName": map[string]bool{},
		}})
	for _, query := range queries {
		panel.WithTarget(query)
	}
	for _, column := range columns {
		if len(column.properties) > 0 {
			panel.OverrideByName(column.name, column.properties)
		}
	}
	return panel
}

// sortedBy sorts by the first of these columns, then by the next; the highest comes first.
func sortedBy(names ...string) []cog.Builder[common.TableSortByFieldState] {
	var all []cog.Builder[common.TableSortByFieldState]
	for _, name := range names {
		all = append(all, common.NewTableSortByFieldStateBuilder().DisplayName(name).Desc(true))
	}
	return all
}
