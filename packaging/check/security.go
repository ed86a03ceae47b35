package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

const page = "docs/KUBERNETES.md"

// tableHead begins the table of the page.
const tableHead = "| rule | what breaks it |\n|---|---|\n"

// securityIsDocumented refuses a page whose table does not have exactly the rules of Pod Security's level "baseline"
// that our pods break.
func securityIsDocumented(root string) error {
	text, err := os.ReadFile(filepath.Join(root, page))
	if err != nil {
		return err
	}
	made, err := rendered(root, release, map[string]any{})
	if err != nil {
		return err
	}
	broken, err := brokenRules(made)
	if err != nil {
		return err
	}
	if len(broken) == 0 {
		return fmt.Errorf("the pods keep to \"baseline\", but %s and the chart say otherwise", page)
	}
	if difference := cmp.Diff(broken, documentedRules(string(text))); difference != "" {
		return fmt.Errorf("%s does not have the table of these rules (-Pod Security, +page):\n%s", page, difference)
	}
	return nil
}

// documentedRules returns the rows of the table.
func documentedRules(text string) []string {
	_, table, _ := strings.Cut(text, tableHead)
	table, _, _ = strings.Cut(table, "\n\n")
	return strings.Split(table, "\n")
}

// brokenRules returns a line of a table for each rule of "baseline" that the DaemonSet's pods break.
func brokenRules(made []object) ([]string, error) {
	evaluator, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		return nil, err
	}
	var lines []string
	for _, object := range made {
		typed, err := object.typed()
		if err != nil {
			return nil, err
		}
		set, ok := typed.(*appsv1.DaemonSet)
		if !ok {
			continue
		}
		baseline := api.LevelVersion{Level: api.LevelBaseline, Version: api.LatestVersion()}
		for _, result := range evaluator.EvaluatePod(baseline, &set.Spec.Template.ObjectMeta, &set.Spec.Template.Spec) {
			if !result.Allowed {
				lines = append(lines, fmt.Sprintf("| %s | %s |", result.ForbiddenReason, result.ForbiddenDetail))
			}
		}
	}
	return lines, nil
}
