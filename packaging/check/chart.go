package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
)

const (
	chartFolder = "packaging/helm/evictscope"
	// The release and its namespace are named as the manifests name them.
	release   = "evictscope"
	namespace = "evictscope"
)

// lintChart does what `helm lint` does, and refuses a chart of another version than this, or with files that are not for it.
func lintChart(root, version string) error {
	folder := filepath.Join(root, chartFolder)
	for _, variant := range variants {
		for _, message := range lint.RunAll(folder, variant.values, namespace).Messages {
			if message.Severity >= support.WarningSev {
				return fmt.Errorf("helm lint, %s: %w", variant.name, message)
			}
		}
	}
	chart, err := loader.Load(folder)
	if err != nil {
		return err
	}
	if chart.Metadata.Version != version || chart.Metadata.AppVersion != version {
		return fmt.Errorf("the chart has the version %s and the appVersion %s, but this is %s",
			chart.Metadata.Version, chart.Metadata.AppVersion, version)
	}
	for _, file := range chart.Files {
		dashboard, _ := filepath.Match("files/*.json", file.Name)
		rules, _ := filepath.Match("files/rules/*.yaml", file.Name)
		if !dashboard && !rules && file.Name != ".helmignore" {
			return fmt.Errorf("%s would be a part of the chart: see its .helmignore", file.Name)
		}
	}
	return nil
}

// rendered returns what `helm template` prints for a release of this name with these values.
func rendered(root, name string, values map[string]any) ([]object, error) {
	chart, err := loader.Load(filepath.Join(root, chartFolder))
	if err != nil {
		return nil, err
	}
	options := common.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(chart, values, options, nil)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		return nil, err
	}
	var made []object
	for name, text := range files {
		switch {
		case strings.HasSuffix(name, "NOTES.txt"):
			if strings.TrimSpace(text) == "" {
				return nil, errors.New("the notes are empty")
			}
		case strings.HasSuffix(name, ".yaml"):
			found, err := objects(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
			made = append(made, found...)
		}
	}
	return made, nil
}
