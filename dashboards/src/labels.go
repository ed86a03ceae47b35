package main

import (
	"errors"
	"flag"
	"strings"
)

// agentJobs selects the targets that are agents, by the name of their scrape job. Under Kubernetes it often
// has the namespace in front: monitoring/evictscope.
const agentJobs = `job=~".*evictscope.*"`

// What differs from one Prometheus to the next.
var (
	// agents are the label matchers for series that every target has, such as up.
	agents = agentJobs
	// cluster is a label that tells clusters apart. Empty: there is none.
	cluster string
)

// dashboardsFor writes dashboards as the command-line arguments ask.
func dashboardsFor(arguments []string) error {
	flags := flag.NewFlagSet("dashboards", flag.ContinueOnError)
	flags.StringVar(&cluster, "cluster", cluster, "a `LABEL` to choose by, and to tell servers apart by, such as cluster")
	flags.StringVar(&agents, "agents", agents, "label `MATCHERS` for the series up of the agents")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("dashboards: name the directory to write to, after the flags")
	}
	return generate(flags.Arg(0))
}

// selection says which series a query is about.
type selection int

const (
	// oneServer is the server that the variables name, and oneInstance are all servers of its agent. Grafana puts the only
	// value of a variable into a query as it is, so as a regular expression [::1]:9739 would not match itself.
	oneServer selection = iota
	oneInstance
	// allServers are those of the chosen hosts.
	allServers
	// allAgents is for series that every target has: with the variables at All, those of other jobs would
	// match too.
	allAgents
)

// matchers returns the label matchers of a selection, as PromQL writes them between braces.
func (of selection) matchers() string {
	matchers := `job=~"$job",`
	if of == oneServer || of == oneInstance {
		matchers += `instance="$instance"`
	} else {
		matchers += `instance=~"$instance"`
	}
	if cluster != "" {
		matchers = cluster + `=~"$cluster",` + matchers
	}
	switch of {
	case oneServer:
		matchers += `,server="$server"`
	case allAgents:
		matchers += "," + agents
	}
	return matchers
}

// serverLabels tell one server from all others.
func serverLabels() []string {
	return append(agentLabels(), "server")
}

// agentLabels tell one agent from all others.
func agentLabels() []string {
	if cluster != "" {
		return []string{cluster, "job", "instance"}
	}
	return []string{"job", "instance"}
}

// promQL fills in the placeholders of an expression: CHOSEN becomes ofChosenPods, LABELS the labels to select by, and AGENT and
// SERVER those that tell one agent, or one server, from all others.
func promQL(of selection, expression string) string {
	return strings.NewReplacer(
		"LABELS", of.matchers(),
		"AGENT", strings.Join(agentLabels(), ", "),
		"SERVER", strings.Join(serverLabels(), ", "),
	).Replace(strings.ReplaceAll(expression, "CHOSEN", ofChosenPods))
}
