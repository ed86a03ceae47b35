package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// scrapeInterval is the shortest step of a panel, because there is a scrape every 15 s.
const scrapeInterval = "15s"

// The identities of the dashboards, which links need.
const (
	cycleUID = "evictscope-cycle"
	fleetUID = "evictscope-fleet"
	agentUID = "evictscope-agent"
)

// Grafana's names of colours. Each theme, dark or light, has its own shades.
const (
	green    = "green"
	blue     = "blue"
	yellow   = "yellow"
	orange   = "orange"
	red      = "red"
	darkRed  = "dark-red"
	noColour = "panel-bg"
	purple   = "purple"
	grey     = "text"
)

func pointer[T any](value T) *T { return &value }

func dataSource() common.DataSourceRef {
	return common.DataSourceRef{Type: pointer("prometheus"), Uid: pointer("${datasource}")}
}

func newDashboard(title, uid, description string) *dashboard.DashboardBuilder {
	made := dashboard.NewDashboardBuilder(title).
		Uid(uid).
		Description(description).
		Tags([]string{"evictscope", "redis"}).
		Readonly().
		Timezone("browser").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Refresh("1m").
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").
			Label("Data source").
			Type("prometheus"))
	jobs := "label_values(evictscope_build_info, job)"
	toCycle := "/d/" + cycleUID + "?${datasource:queryparam}&${job:queryparam}"
	if cluster != "" {
		toCycle += "&${" + cluster + ":queryparam}"
		made.WithVariable(anyOf(labelVariable("cluster", "Cluster", "label_values(evictscope_build_info, "+cluster+")")))
		jobs = `label_values(evictscope_build_info{` + cluster + `=~"$cluster"}, job)`
	}
	for _, link := range []*dashboard.DashboardLinkBuilder{
		dashboard.NewDashboardLinkBuilder("Fleet").Url("/d/" + fleetUID).IncludeVars(true),
		// It chooses one instance and has no use for several, nor for All.
		dashboard.NewDashboardLinkBuilder("Eviction cycle").Url(toCycle),
		dashboard.NewDashboardLinkBuilder("Agent").Url("/d/" + agentUID).IncludeVars(true),
	} {
		made.Link(link.Type(dashboard.DashboardLinkTypeLink).Icon("dashboard").KeepTime(true))
	}
	return made.WithVariable(anyOf(labelVariable("job", "Job", jobs)))
}

// labelVariable returns a choice of the values of a label, updated when the time range changes.
func labelVariable(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).
		Label(label).
		Datasource(dataSource()).
		Query(dashboard.StringOrMap{String: &query}).
		Definition(query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortNaturalAsc)
}

// anyOf lets a choice have several values, and begin with all of them.
func anyOf(choice *dashboard.QueryVariableBuilder) *dashboard.QueryVariableBuilder {
	return choice.Multi(true).IncludeAll(true).AllValue(".+").Current(dashboard.VariableOption{
		Selected: pointer(true),
		Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
		Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
	})
}

func instances() *dashboard.QueryVariableBuilder {
	chosen := `job=~"$job"`
	if cluster != "" {
		chosen = cluster + `=~"$cluster",` + chosen
	}
	return labelVariable("instance", "Instance", "label_values(evictscope_build_info{"+chosen+"}, instance)")
}

// query returns a range query. Its expression has the placeholders of promQL, and its legend Grafana's form, {{label}}.
func query(refID string, of selection, expression, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().
		Datasource(dataSource()).
		RefId(refID).
		Expr(promQL(of, expression)).
		LegendFormat(legend).
		Range()
}

// heatmapQuery returns buckets.
func heatmapQuery(of selection, expression string) *prometheus.DataqueryBuilder {
	return query("A", of, expression, "{{le}}").Format(prometheus.PromQueryFormatHeatmap)
}

// tableQuery returns rows: those of each step, or the present ones for an instant query.
func tableQuery(refID string, of selection, expression string) *prometheus.DataqueryBuilder {
	return query(refID, of, expression, "").Format(prometheus.PromQueryFormatTable)
}

// step is a threshold: the value at which a colour begins.
type step struct {
	from   float64
	colour string
}

func now(refID, expression string) *prometheus.DataqueryBuilder {
	return tableQuery(refID, allServers, expression).Instant()
}

// thresholds returns thresholds that begin with a colour for everything below the first step.
func thresholds(base string, steps ...step) *dashboard.ThresholdsConfigBuilder {
	all := []dashboard.Threshold{{Color: base}}
	for _, step := range steps {
		all = append(all, dashboard.Threshold{Value: pointer(step.from), Color: step.colour})
	}
	return dashboard.NewThresholdsConfigBuilder().
		Mode(dashboard.ThresholdsModeAbsolute).
		Steps(all)
}

// property returns a setting for the fields that an override matches.
func property(id string, value any) dashboard.DynamicConfigValue {
	return dashboard.DynamicConfigValue{Id: id, Value: value}
}

func fixedColour(colour string) dashboard.DynamicConfigValue {
	return property("color", map[string]any{"mode": "fixed", "fixedColor": colour})
}

// steps returns the thresholds of one field.
func steps(base string, steps ...step) dashboard.DynamicConfigValue {
	config, err := thresholds(base, steps...).Build()
	if err != nil {
		// The steps are constants of this program.
		panic(err)
	}
	return property("thresholds", config)
}

// coloured gives the text of a column the colour of its threshold.
func coloured(base string, from ...step) []dashboard.DynamicConfigValue {
	return []dashboard.DynamicConfigValue{steps(base, from...), colouredText()}
}

func colouredText() dashboard.DynamicConfigValue {
	return property("custom.cellOptions", map[string]any{"type": "color-text"})
}
