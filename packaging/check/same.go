package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"
)

// same refuses a chart that makes other objects than kustomize, with two exceptions: Helm makes no namespace, and either
// appends a digest of its own to the name of the configuration.
func same(manifests, chart []object) error {
	expected, err := byName(manifests)
	if err != nil {
		return err
	}
	delete(expected, "v1/Namespace "+namespace)
	made, err := byName(chart)
	if err != nil {
		return err
	}
	names := slices.Collect(maps.Keys(expected))
	for name := range made {
		if _, ok := expected[name]; !ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if difference := cmp.Diff(expected[name].tree, made[name].tree); difference != "" {
			return fmt.Errorf("the chart makes another %s than kustomize (-kustomize, +chart):\n%s", name, difference)
		}
	}
	return nil
}

// byName returns the objects by kind and name, the configuration's without its digest.
func byName(all []object) (map[string]object, error) {
	configuration := ""
	for _, object := range all {
		data, _ := object.tree["data"].(map[string]any)
		if _, ok := data["config.toml"]; ok {
			metadata, _ := object.tree["metadata"].(map[string]any)
			configuration = fmt.Sprint(metadata["name"])
		}
	}
	if !strings.HasPrefix(configuration, release+"-") {
		return nil, fmt.Errorf("the configuration is called %q, but its name must change with its content", configuration)
	}
	found := map[string]object{}
	for _, one := range all {
		text := strings.ReplaceAll(string(one.json), configuration, "the-configuration")
		renamed, err := objects(text)
		if err != nil || len(renamed) != 1 {
			return nil, fmt.Errorf("%s cannot be read again: %w", one.name(), err)
		}
		name := renamed[0].name()
		if _, twice := found[name]; twice {
			return nil, fmt.Errorf("there are two of %s", name)
		}
		found[name] = renamed[0]
	}
	return found, nil
}
