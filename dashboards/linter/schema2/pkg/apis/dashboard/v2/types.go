// Package v2 stands in for Grafana's: the dashboards here are of the classic schema, and one of
// version 2 is an error.
package v2

import "errors"

// DashboardSpec is a dashboard.
type DashboardSpec struct {
	Title       string
	Editable    *bool
	Elements    map[string]DashboardElement
	Variables   []DashboardVariableKind
	Annotations []DashboardAnnotationQueryKind
}

// UnmarshalJSON refuses.
func (*DashboardSpec) UnmarshalJSON([]byte) error {
	return errors.New("this linter was built without the schema of version 2")
}

// What the linter looks into.
type (
	DashboardElement   struct{ PanelKind *DashboardPanelKind }
	DashboardPanelKind struct{ Spec DashboardPanelSpec }
	DashboardPanelSpec struct {
		Id          float64
		Title       string
		Description string
		VizConfig   DashboardVizConfigKind
		Data        DashboardQueryGroupKind
	}
	DashboardVizConfigKind struct {
		Group string
		Spec  DashboardVizConfigSpec
	}
	DashboardVizConfigSpec  struct{ FieldConfig, Options any }
	DashboardQueryGroupKind struct{ Spec DashboardQueryGroupSpec }
	DashboardQueryGroupSpec struct{ Queries []DashboardPanelQueryKind }
	DashboardPanelQueryKind struct{ Spec DashboardPanelQuerySpec }
	DashboardPanelQuerySpec struct {
		RefId  string
		Hidden bool
		Query  DashboardDataQueryKind
	}
	DashboardDataQueryKind struct {
		Group      string
		Datasource *DashboardDatasource
		Spec       map[string]any
	}
	DashboardDatasource          struct{ Name *string }
	DashboardAnnotationQueryKind struct{ Spec DashboardAnnotationQuerySpec }
	DashboardAnnotationQuerySpec struct {
		Name  string
		Query DashboardDataQueryKind
	}
	// DashboardVariableKind is one of these.
	DashboardVariableKind struct {
		QueryVariableKind *DashboardQueryVariableKind
		DatasourceVariableKind, CustomVariableKind, IntervalVariableKind, ConstantVariableKind,
		TextVariableKind, AdhocVariableKind, GroupByVariableKind, SwitchVariableKind *DashboardOtherVariableKind
	}
	DashboardQueryVariableKind struct{ Spec DashboardQueryVariableSpec }
	DashboardQueryVariableSpec struct {
		Name            string
		Label, AllValue *string
		Multi           bool
		Refresh         DashboardVariableRefresh
		Query           DashboardDataQueryKind
	}
	DashboardOtherVariableKind struct{ Spec DashboardOtherVariableSpec }
	DashboardOtherVariableSpec struct {
		Name, Query, PluginId string
		Label, AllValue       *string
		Multi                 bool
		Refresh               DashboardVariableRefresh
	}
	// DashboardVariableRefresh is when a variable's values are asked for.
	DashboardVariableRefresh string
)

// The values that the linter knows.
const (
	DashboardVariableRefreshOnTimeRangeChanged DashboardVariableRefresh = "onTimeRangeChanged"
	DashboardVariableRefreshOnDashboardLoad    DashboardVariableRefresh = "onDashboardLoad"
)
