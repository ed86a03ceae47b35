// Command check judges the Helm chart in packaging/helm, without a cluster.
//
//	go run . check ROOT VERSION   refuses what Kubernetes, Helm or prometheus-operator would refuse, and a page that is
//	                              silent about what Pod Security says
//	go run . render ROOT          prints the manifests that a release of evictscope has beside the chart
//
// ROOT is the repository, VERSION its version. `check` finds the CustomResourceDefinitions of prometheus-operator in
// the directory of its module, which PROMETHEUS_OPERATOR names.
//
// `cargo xtask kubernetes` runs the first, `cargo xtask package` the second.
package main

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// operatorVariable names the directory of prometheus-operator's module.
const operatorVariable = "PROMETHEUS_OPERATOR"

//go:embed variants.yaml
var variants string

func main() {
	// Helm would log at each look that a link leads to the dashboards.
	slog.SetLogLoggerLevel(slog.LevelWarn)
	said, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
	fmt.Println(said)
}

func run(arguments []string) (string, error) {
	switch {
	case len(arguments) == 3 && arguments[0] == "check":
		return check(arguments[1], arguments[2], os.Getenv(operatorVariable))
	case len(arguments) == 2 && arguments[0] == "render":
		return plain(arguments[1])
	}
	return "", errors.New("usage: check check ROOT VERSION | check render ROOT")
}

// check returns how many objects it found valid.
func check(root, version, operator string) (string, error) {
	schemas, err := operatorSchemas(operator)
	if err != nil {
		return "", err
	}
	if err := lintChart(root, version); err != nil {
		return "", err
	}
	count := 0
	// The second name is one that YAML takes for a number, unless it is quoted.
	for _, name := range []string{release, "123"} {
		// Helm writes into the values that it is given, so they are read for each name.
		tried, err := objects(variants)
		if err != nil {
			return "", err
		}
		for _, values := range tried {
			made, err := rendered(root, name, values.tree)
			if err == nil {
				err = connected(made)
			}
			if err != nil {
				return "", fmt.Errorf("%s: %w", values.json, err)
			}
			_, addressed, _ := unstructured.NestedString(values.tree, "prometheusRule", "grafana")
			for _, object := range made {
				err := object.check(schemas)
				if err == nil && addressed && strings.Contains(string(object.json), "https://grafana.example") {
					err = errors.New("an address of the example is left")
				}
				if err != nil {
					return "", fmt.Errorf("%s, %s: %w", values.json, object.name(), err)
				}
				count++
			}
		}
	}
	if err := securityIsDocumented(root); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d objects of the chart are valid", count), nil
}
