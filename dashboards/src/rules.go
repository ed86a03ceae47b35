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
		Funcs(template.FuncMap{"comment": comment, "podLabels": podLabels, "podLabelsOfEnded": podLabelsOfEnded, "ofServer": ofServer, "stalledBy": stalledBy, "allCauses": allCauses, "recorded": recorded, "ofClass": ofClass}).
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
		"OfCalls":    ofCalls,
	}
	for _, threshold := range thresholdsOfAlerts {
		values[threshold.Name] = threshold.Value
	}
	values["Swollen"] = buffersShare + " > " + values["SwollenShare"].(string)
	return values
}

// Stalls by the first of these causes page, because raising the limit helps at once. Stalls by all others open a
// ticket.
const (
	freeing = `cause=~"eviction|expire"`
	others  = `cause!~"eviction|expire"`
)

// What may take the time of an eviction call, as records name it (agent/records/src/explain; a test compares them).
const ofCalls = `,cause=~"the choice of keys|a big key|the invalidation of tracked keys|telling others of evicted keys|an evicting call that slept|a lower maxmemory"`

// Which share of maxmemory client buffers took, but those of replicas.
const buffersShare = `sum without (class) (avg_over_time(evictscope_client_buffers_bytes{%s,class!="replica"}[2m])) / (evictscope_maxmemory_bytes{%s} > 0)`

// ofServer returns what makes a query about the server of an alert, in an annotation: the text of the query has %s in
// place of the server's labels, and [4]f for the value of the alert.
func ofServer(query string) string {
	query = strings.ReplaceAll(query, "%s", "job=%[1]q,instance=%[2]q,server=%[3]q")
	arguments := "` $labels.job $labels.instance $labels.server"
	if strings.Contains(query, "[4]f") {
		arguments += " $value"
	}
	return "printf `" + query + arguments
}

// stalledBy returns the first words of a summary: which of these causes took most of a time.
func stalledBy(causes, time string) string {
	worst := ofServer("topk(1, sum by (cause) (increase(evictscope_stall_seconds_total{%s," + causes + "}[" + time + "])) > 0)")
	return "Stalled{{ with " + worst + " | query }} by {{ (first .).Labels.cause }}{{ end }}"
}

// allCauses returns a sentence: for how long all causes stalled clients in a time.
func allCauses(time string) string {
	all := ofServer("sum by (cause) (increase(evictscope_stall_seconds_total{%s}[" + time + "])) > 0")
	return "{{- with " + all + ` | query }} All causes:{{ range $i, $of := sortByLabel "cause" . }}{{ if $i }},{{ end }} {{ $of.Labels.cause }} {{ $of.Value | printf "%.0f" }} s{{ end }}.{{ end }}`
}

// recorded returns what there is to say of the causes that records of the last so many seconds name, by the agent's clock.
func recorded(before, causes, seconds, after string) string {
	named := ofServer("evictscope_record_cause_timestamp_seconds{%s" + causes + "} > scalar(evictscope_loop_last_turn_timestamp_seconds{job=%[1]q,instance=%[2]q}) - " + seconds)
	return "{{- with " + named + " | query }}" + before + `{{ range $i, $of := sortByLabel "cause" . }}{{ if $i }}, {{ end }}{{ $of.Labels.cause }}{{ end }}` + after + "{{ end }}"
}

// ofClass returns which class has most of the client buffers that an alert is about: of their mean where they take much
// of maxmemory (swollen), else of their peak, if that was scraped.
func ofClass(swollen string) string {
	const named = " | query }} of the class {{ (first .).Labels.class }}{{ end }}"
	mean := ofServer(`topk(1, avg_over_time(evictscope_client_buffers_bytes{%s,class!="replica"}[2m]))`)
	peak := ofServer("topk(1, max_over_time(evictscope_client_buffers_bytes{%s}[2m])) > %[4]f / 2")
	return "{{ with " + ofServer(swollen) + " | query }}{{ with " + mean + named + "{{ else }}{{ with " + peak + named + "{{ end }}"
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
