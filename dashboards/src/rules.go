package main

import (
	"embed"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// What differs from one Prometheus to the next in the rules alone.
var (
	// selector has label matchers for all series that the rules read. Empty selects all.
	selector string
	// runbooks and grafana are where the alerts link to.
	runbooks = "https://evictscope.example/docs/runbooks"
	grafana  = "https://grafana.example"
	// scheme is how browsers reach the agents' own pages.
	scheme = "http"
)

// ruleTemplates are the rules. Placeholders are written <<…>>, because Prometheus uses {{…}} itself.
//
//go:embed rules/*.yaml
var ruleTemplates embed.FS

// rulesFor writes rules as the command-line arguments ask.
func rulesFor(arguments []string) error {
	flags := flag.NewFlagSet("rules", flag.ContinueOnError)
	flags.StringVar(&selector, "selector", selector, "label `MATCHERS` for all series that the rules read, such as 'cluster=\"a\"'")
	flags.StringVar(&agents, "agents", agents, "label `MATCHERS` for the series up of the agents")
	flags.StringVar(&cluster, "cluster", cluster, "the `LABEL` that the dashboards choose clusters by, if they do")
	flags.StringVar(&runbooks, "runbooks", runbooks, "`URL` of your copy of docs/runbooks")
	flags.StringVar(&grafana, "grafana", grafana, "`URL` of your Grafana")
	flags.StringVar(&scheme, "scheme", scheme, "`SCHEME` of the agents' own pages: https where they have TLS")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("rules: name the directory to write to, after the flags")
	}
	return generateRules(flags.Arg(0))
}

// generateRules writes the files of rules into a directory, which it creates.
func generateRules(directory string) error {
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	templates, err := template.New("").Delims("<<", ">>").Option("missingkey=error").
		Funcs(template.FuncMap{"comment": comment, "podLabels": podLabels, "podLabelsOfEnded": podLabelsOfEnded, "ofServer": ofServer, "stalledBy": stalledBy, "slept": slept}).
		ParseFS(ruleTemplates, "rules/*.yaml")
	if err != nil {
		return err
	}
	values := ruleValues()
	for _, file := range templates.Templates() {
		var text strings.Builder
		if err := file.Execute(&text, values); err != nil {
			return err
		}
		rules := selected(text.String())
		if err := os.WriteFile(filepath.Join(directory, file.Name()), []byte(rules), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// ruleValues are what the templates can name.
func ruleValues() map[string]any {
	values := map[string]any{
		"Thresholds": thresholdsOfAlerts,
		"Agents":     agents,
		"Runbooks":   runbooks,
		"Cycle":      dashboardOf(cycleUID, "job", "instance", "server"),
		"Agent":      dashboardOf(agentUID, "job", "instance"),
		"Page":       pageOfServer(),
		"Freeing":    freeing,
		"Others":     others,
	}
	for _, threshold := range thresholdsOfAlerts {
		values[threshold.Name] = threshold.Value
	}
	return values
}

// Stalls by the first of these causes page, because raising the limit helps at once. Stalls by all others open a
// ticket.
const (
	freeing = `cause=~"eviction|expire"`
	others  = `cause!~"eviction|expire"`
)

// ofServer returns what makes a query about the server of an alert, in an annotation: the text of the query has %s in
// place of the server's labels.
func ofServer(query string) string {
	query = strings.ReplaceAll(query, "%s", "job=%q,instance=%q,server=%q")
	return "printf `" + query + "` $labels.job $labels.instance $labels.server"
}

// stalledBy returns the first words of a summary: which of these causes took most of a time.
func stalledBy(function, causes, time string) string {
	seconds := `evictscope_stall_seconds_total{%s,` + causes + `}[` + time + `]`
	worst := ofServer("topk(1, sum by (cause) (" + function + "(" + seconds + ")) > 0)")
	return "Stalled{{ with " + worst + " | query }} by {{ (first .).Labels.cause }}{{ end }}"
}

// slept returns a query that has a result if the main thread had a CPU for less than half of the eviction call of the alert.
func slept() string {
	cpu := `evictscope_main_thread_cpu_seconds_total{job=%q,instance=%q,server=%q,activity="eviction"}`
	return "printf `600 * sum(rate(" + cpu + "[5m])) < clamp_max(vector(%f), 300)` $labels.job $labels.instance $labels.server $value"
}

// podLabels returns the two labels of an alert that name its server's pod, as lines in YAML.
func podLabels() string {
	return podLabelsOf(func(label string) string {
		info := ofServer("evictscope_server_info{%s," + label + `!=""}`)
		return "{{ with " + info + " | query }}{{ (first .).Labels." + label + " }}"
	})
}

// podLabelsOfEnded does it for a server that has ended, and its info with it: the alert's own series has these labels.
func podLabelsOfEnded() string {
	return podLabelsOf(func(label string) string { return "{{ with $labels." + label + " }}{{ . }}" })
}

// podLabelsOf takes what begins with the namespace or the name of the server's pod. Else the value is what Prometheus
// says about the agent. An empty value is no label.
func podLabelsOf(begin func(label string) string) string {
	return "namespace: '" + begin("pod_namespace") + "{{ else }}{{ $labels.namespace }}{{ end }}'\n" +
		"          pod: '" + begin("pod_name") + "{{ else }}{{ $labels.pod }}{{ end }}'"
}

// dashboardOf returns the address of a dashboard. Its variables are filled in from the labels of the alert, by
// Prometheus.
func dashboardOf(uid string, variables ...string) string {
	address, separator := grafana+"/d/"+uid, "?"
	add := func(variable, label string) {
		address += separator + "var-" + variable + "={{ $labels." + label + " | urlquery }}"
		separator = "&"
	}
	if cluster != "" {
		add("cluster", cluster)
	}
	for _, variable := range variables {
		add(variable, variable)
	}
	return address
}

// pageOfServer returns the address of a server's page on its agent. The name of a server may be a path: urlquery
// escapes everything that has a meaning in an address, but turns a space into a plus, which only parameters do.
func pageOfServer() string {
	return scheme + `://{{ $labels.instance }}/server/{{ $labels.server | urlquery | reReplaceAll "[+]" "%20" }}`
}

// selected puts the selector where the rules have LABELS.
func selected(rules string) string {
	if selector == "" {
		return strings.NewReplacer("{LABELS}", "", "{LABELS,", "{").Replace(rules)
	}
	return strings.ReplaceAll(rules, "{LABELS", "{"+selector)
}

// comment returns a text as a comment in YAML.
func comment(text string) string {
	const width = 108
	var lines strings.Builder
	line := "#"
	for _, word := range strings.Fields(text) {
		if len(line)+1+len(word) > width {
			lines.WriteString(line + "\n")
			line = "#  "
		}
		line += " " + word
	}
	lines.WriteString(line)
	return lines.String()
}
