package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"sigs.k8s.io/yaml"
)

// schema is the schema of a CustomResourceDefinition.
type schema struct {
	validator validation.SchemaValidator
}

// operatorSchemas returns the schemas of prometheus-operator's kinds that we use, from the directory of its module.
func operatorSchemas(operator string) (map[string]schema, error) {
	if operator == "" {
		return nil, errors.New(operatorVariable + " does not name the directory of prometheus-operator's module")
	}
	schemas := map[string]schema{}
	for _, plural := range []string{"podmonitors", "prometheusrules"} {
		file := filepath.Join(operator, "example/prometheus-operator-crd/monitoring.coreos.com_"+plural+".yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var definition apiextensionsv1.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &definition); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		for _, version := range definition.Spec.Versions {
			var internal apiextensions.JSONSchemaProps
			err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &internal, nil)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			validator, _, err := validation.NewSchemaValidator(&internal)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			kind := definition.Spec.Group + "/" + version.Name + "/" + definition.Spec.Names.Kind
			schemas[kind] = schema{validator}
		}
	}
	return schemas, nil
}

// validate does what the API server does with the definition: types, enumerations, patterns and bounds.
func (s schema) validate(o object) error {
	return validation.ValidateCustomResource(nil, o.tree, s.validator).ToAggregate()
}
