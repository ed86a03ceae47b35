package main

import (
	"strings"

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

// The labels that each query selects by: one server, or all servers of the chosen hosts.
const (
	oneServer  = `job=~"$job",instance=~"$instance",server=~"$server"`
	allServers = `job=~"$job",instance=~"$instance"`
	// For series that every target has: with the variables at All, those of other jobs would match too.
	// The alert EvictscopeAgentDown selects the same name.
	allAgents = allServers + `,job=~"evictscope.*"`
)

// Grafana's names of colours. Each theme, dark or light, has its own shades.
const (
	green  = "green"
	blue   = "blue"
	orange = "orange"
	red    = "red"
	purple = "purple"
	grey   = "text"
)

func pointer[T any](value T) *T { return &value }

func dataSource() common.DataSourceRef {
	return common.DataSourceRef{Type: pointer("prometheus"), Uid: pointer("${datasource}")}
}

func newDashboard(title, uid, description string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder(title).
		Uid(uid).
		Description(description).
		Tags([]string{"evictscope", "redis"}).
		Readonly().
		// As in the agent's log and API.
		Timezone("utc").
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Refresh("1m").
		Link(dashboard.NewDashboardLinkBuilder("evictscope").
			Type(dashboard.DashboardLinkTypeDashboards).
			Icon("external link").
			Tooltip("The other dashboards of evictscope").
			Tags([]string{"evictscope"}).
			KeepTime(true).
			IncludeVars(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").
			Label("Data source").
			Type("prometheus")).
		WithVariable(labelVariable("job", "Job", "label_values(evictscope_build_info, job)").
			Multi(true).IncludeAll(true).AllValue(".+").Current(all()))
}

// labelVariable is a choice of the values of a label, updated when the time range changes.
func labelVariable(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).
		Label(label).
		Datasource(dataSource()).
		Query(dashboard.StringOrMap{String: &query}).
		Definition(query).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortNaturalAsc)
}

func all() dashboard.VariableOption {
	return dashboard.VariableOption{
		Selected: pointer(true),
		Text:     dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}},
		Value:    dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}},
	}
}

const instanceQuery = `label_values(evictscope_build_info{job=~"$job"}, instance)`

func allInstances() *dashboard.QueryVariableBuilder {
	return labelVariable("instance", "Instance", instanceQuery).
		Multi(true).IncludeAll(true).AllValue(".+").Current(all())
}

// query is a range query. LABELS in the expression becomes the labels to select by, and the legend has
// Grafana's form, {{label}}.
func query(refID, labels, expression, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().
		Datasource(dataSource()).
		RefId(refID).
		Expr(strings.ReplaceAll(expression, "LABELS", labels)).
		LegendFormat(legend).
		Range()
}

// heatmapQuery returns buckets.
func heatmapQuery(labels, expression string) *prometheus.DataqueryBuilder {
	return query("A", labels, expression, "{{le}}").Format(prometheus.PromQueryFormatHeatmap)
}

// tableQuery returns rows: those of each step, or of an instant query the present ones.
func tableQuery(refID, labels, expression string) *prometheus.DataqueryBuilder {
	return query(refID, labels, expression, "").Format(prometheus.PromQueryFormatTable)
}

// step is a threshold: the value at which a colour begins.
type step struct {
	from   float64
	colour string
}

// thresholds begin with a colour for everything below the first step.
func thresholds(base string, steps ...step) *dashboard.ThresholdsConfigBuilder {
	all := []dashboard.Threshold{{Color: base}}
	for _, step := range steps {
		all = append(all, dashboard.Threshold{Value: pointer(step.from), Color: step.colour})
	}
	return dashboard.NewThresholdsConfigBuilder().
		Mode(dashboard.ThresholdsModeAbsolute).
		Steps(all)
}

// property is a setting of the fields that an override matches.
func property(id string, value any) dashboard.DynamicConfigValue {
	return dashboard.DynamicConfigValue{Id: id, Value: value}
}

func fixedColour(colour string) dashboard.DynamicConfigValue {
	return property("color", map[string]any{"mode": "fixed", "fixedColor": colour})
}

// coloured gives the text of a column the colour of its threshold.
func coloured(base string, steps ...step) []dashboard.DynamicConfigValue {
	config, err := thresholds(base, steps...).Build()
	if err != nil {
		// The steps are constants of this program.
		panic(err)
	}
	return []dashboard.DynamicConfigValue{
		property("thresholds", config),
		property("custom.cellOptions", map[string]any{"type": "color-text"}),
	}
}
