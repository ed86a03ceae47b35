package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	strictjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

// object is a Kubernetes object that a cluster would be given.
type object struct {
	json []byte
	tree map[string]any
}

// kinds are the kinds that we use, with their types.
var kinds = map[string]func() runtime.Object{
	"v1/Namespace":                            func() runtime.Object { return &corev1.Namespace{} },
	"v1/ServiceAccount":                       func() runtime.Object { return &corev1.ServiceAccount{} },
	"v1/ConfigMap":                            func() runtime.Object { return &corev1.ConfigMap{} },
	"apps/v1/DaemonSet":                       func() runtime.Object { return &appsv1.DaemonSet{} },
	"networking.k8s.io/v1/NetworkPolicy":      func() runtime.Object { return &networkingv1.NetworkPolicy{} },
	"monitoring.coreos.com/v1/PodMonitor":     func() runtime.Object { return &monitoringv1.PodMonitor{} },
	"monitoring.coreos.com/v1/PrometheusRule": func() runtime.Object { return &monitoringv1.PrometheusRule{} },
}

// objects returns the documents of a text in YAML. A key that is there twice is an error.
func objects(text string) ([]object, error) {
	var found []object
	documents := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
		json, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, err
		}
		if string(json) == "null" {
			continue
		}
		var tree map[string]any
		if err := strictjson.UnmarshalCaseSensitivePreserveInts(json, &tree); err != nil {
			return nil, err
		}
		found = append(found, object{json, tree})
	}
}

func (o object) kind() string {
	return fmt.Sprintf("%v/%v", o.tree["apiVersion"], o.tree["kind"])
}

func (o object) name() string {
	metadata, _ := o.tree["metadata"].(map[string]any)
	return fmt.Sprintf("%s %v", o.kind(), metadata["name"])
}

// check decodes an object as strictly as the API server does for kubectl, and validates it.
func (o object) check(schemas map[string]schema) error {
	typed, err := o.typed()
	if err != nil {
		return err
	}
	// `kubectl apply` keeps the whole object in an annotation.
	if len(o.json) > validation.TotalAnnotationSizeLimitB {
		return fmt.Errorf("%d bytes are too many for kubectl apply", len(o.json))
	}
	if schema, ok := schemas[o.kind()]; ok {
		return schema.validate(o)
	}
	return validate(typed)
}

// typed returns the object in Kubernetes' own type. A field that the type does not have is an error.
func (o object) typed() (runtime.Object, error) {
	newOfKind, ok := kinds[o.kind()]
	if !ok {
		return nil, errors.New("this kind is not in the list of kinds that we use")
	}
	made := newOfKind()
	unknown, err := strictjson.UnmarshalStrict(o.json, made)
	if err != nil {
		return nil, err
	}
	return made, errors.Join(unknown...)
}
