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
	releaseutil "helm.sh/helm/v4/pkg/release/v1/util"
)

const (
	chartFolder = "packaging/helm/evictscope"
	// The release and its namespace, as docs/KUBERNETES.md names them.
	release   = "evictscope"
	namespace = "evictscope"
)

// lintChart does what `helm lint` does, and refuses a chart of another version, or with files that do not belong in it.
func lintChart(root, version string) error {
	folder := filepath.Join(root, chartFolder)
	tried, err := objects(variants)
	if err != nil {
		return err
	}
	for _, values := range tried {
		for _, message := range lint.RunAll(folder, values.tree, namespace).Messages {
			if message.Severity >= support.WarningSev {
				return fmt.Errorf("helm lint, %s: %w", values.json, message)
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

// manifests returns what Helm renders for a release with this name and these values, in the order of installation.
func manifests(root, name string, values map[string]any) ([]releaseutil.Manifest, error) {
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
	notes := chart.Name() + "/templates/NOTES.txt"
	if strings.TrimSpace(files[notes]) == "" {
		return nil, errors.New("the notes are empty")
	}
	delete(files, notes)
	_, sorted, err := releaseutil.SortManifests(files, nil, releaseutil.InstallOrder)
	return sorted, err
}

// rendered returns the same manifests as objects.
func rendered(root, name string, values map[string]any) ([]object, error) {
	texts, err := manifests(root, name, values)
	if err != nil {
		return nil, err
	}
	var made []object
	for _, text := range texts {
		found, err := objects(text.Content)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text.Name, err)
		}
		made = append(made, found...)
	}
	return made, nil
}

// plain returns what `helm template` prints for the defaults and the namespace.
func plain(root string) (string, error) {
	texts, err := manifests(root, release, map[string]any{"createNamespace": true})
	if err != nil {
		return "", err
	}
	printed := "# What `helm template` makes of the chart of evictscope. Name your registry in the image of the DaemonSet.\n"
	for _, text := range texts {
		printed += fmt.Sprintf("---\n# Source: %s\n%s\n", text.Name, strings.TrimSpace(text.Content))
	}
	return strings.TrimSpace(printed), nil
}
