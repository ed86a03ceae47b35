// Command dashboards generates evictscope's Grafana dashboards and Prometheus rules, and validates the dashboards
// against Grafana's schema.
//
//	go run . generate DIRECTORY              writes the dashboards there, and the rules into rules below it
//	go run . dashboards [FLAGS] DIRECTORY    writes dashboards for your labels there: -help
//	go run . rules [FLAGS] DIRECTORY         writes rules for your labels and addresses there: -help
//	go run . validate FILE…                  refuses what is not in Grafana's schema
//
// `cargo xtask dashboards` runs the first and the last. `cargo xtask test` fails if dashboards or rules are stale.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// schemaVersion is that of Grafana 11.0. Later versions migrate it by themselves, and the dashboards use nothing newer.
const schemaVersion = 39

// unescaped undoes what Go escapes for HTML, so that comparisons in queries are readable.
var unescaped = strings.NewReplacer(`\u003c`, "<", `\u003e`, ">", `\u0026`, "&")

func main() {
	// The fields of a panel or a query depend on its plugin. Without this, any field would be valid.
	plugins.RegisterDefaultPlugins()
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) == 2 && arguments[0] == "generate":
		if err := generate(arguments[1]); err != nil {
			return err
		}
		return generateRules(filepath.Join(arguments[1], "rules"))
	case len(arguments) >= 1 && arguments[0] == "dashboards":
		return dashboardsFor(arguments[1:])
	case len(arguments) >= 1 && arguments[0] == "rules":
		return rulesFor(arguments[1:])
	case len(arguments) >= 2 && arguments[0] == "validate":
		return validate(arguments[1:])
	}
	return errors.New("usage: dashboards generate DIRECTORY | dashboards dashboards|rules [FLAGS] DIRECTORY | dashboards validate FILE…")
}

func generate(directory string) error {
	for name, builder := range map[string]*dashboard.DashboardBuilder{
		"eviction-cycle.json": evictionCycle(),
		"fleet.json":          fleet(),
		"agent.json":          agent(),
	} {
		made, err := builder.Build()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		finish(&made)
		text, err := json.MarshalIndent(made, "", "  ")
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		text = []byte(unescaped.Replace(string(text)) + "\n")
		if err := os.WriteFile(filepath.Join(directory, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// finish sets what the builders have no method for.
func finish(made *dashboard.Dashboard) {
	made.SchemaVersion = schemaVersion
	for i := range made.Links {
		// The SDK's default is a menu that only Grafana 12 has.
		made.Links[i].Placement = nil
	}
	for i := range made.Annotations.List {
		made.Annotations.List[i].Placement = nil
	}
	// Links to a panel, and the linter, need a number for each panel.
	count := uint32(0)
	number := func() *uint32 {
		count++
		return pointer(count)
	}
	for _, made := range made.Panels {
		if row := made.RowPanel; row != nil {
			row.Id = *number()
			for i := range row.Panels {
				row.Panels[i].Id = number()
			}
		} else {
			made.Panel.Id = number()
		}
	}
}

func validate(files []string) error {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var read dashboard.Dashboard
		// The SDK returns an empty list of errors as an error that is not nil.
		var wrong cog.BuildErrors
		if err := read.UnmarshalJSONStrict(text); err != nil && (!errors.As(err, &wrong) || len(wrong) > 0) {
			return fmt.Errorf("%s is not in Grafana's schema:\n%w", file, err)
		}
		if err := read.Validate(); err != nil {
			return fmt.Errorf("%s breaks a rule of Grafana's schema:\n%w", file, err)
		}
	}
	return nil
}
