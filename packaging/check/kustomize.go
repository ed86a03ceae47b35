package main

import (
	"os"
	"path/filepath"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// built returns what kustomize makes of the base with these components, as an overlay of a user would have them.
func built(root string, components []string) ([]object, error) {
	overlay, err := os.MkdirTemp("", "overlay")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(overlay)
	// kustomize knows paths without links, and takes relative ones only.
	from, err := filepath.EvalSymlinks(overlay)
	if err != nil {
		return nil, err
	}
	to, err := filepath.Abs(root)
	if err == nil {
		to, err = filepath.EvalSymlinks(to)
	}
	if err != nil {
		return nil, err
	}
	relative, err := filepath.Rel(from, to)
	if err != nil {
		return nil, err
	}
	var file types.Kustomization
	file.Namespace = namespace
	file.Resources = []string{filepath.Join(relative, "packaging/kubernetes")}
	for _, component := range components {
		file.Components = append(file.Components, filepath.Join(relative, component))
	}
	text, err := yaml.Marshal(file)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), text, 0o644); err != nil {
		return nil, err
	}
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), overlay)
	if err != nil {
		return nil, err
	}
	yaml, err := made.AsYaml()
	if err != nil {
		return nil, err
	}
	return objects(string(yaml))
}
