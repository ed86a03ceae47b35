package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// modes are the probe modes, as their query numbers them.
var modes = []state{
	{"0", "switched off", red},
	{"1", "evicting-only", blue},
	{"2", "every-call", green},
}

// agent is about evictscope itself: what it costs, and how reliable it is.
func agent() *dashboard.DashboardBuilder {
	made := newDashboard("evictscope / Agent", agentUID,
		"evictscope itself: what it costs the servers and the host, its probe modes, what it has not found, and what went wrong.").
		Time("now-6h", "now").
		WithVariable(allInstances())

	made.WithPanel(lines("Overhead",
		"What the probes cost each server, as a share of its main thread: the number of hits, times the cost of a hit on that machine. Threshold: 1 %, the default of --overhead-budget. The budget governs the probes on every call. Those on evicting calls stay.",
		"percentunit",
		query("A", allServers, "evictscope_overhead_ratio{LABELS}", "{{instance}} {{server}}")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{0.01, orange})).
		ThresholdsStyle(dashed()).
		AxisSoftMax(0.012))

	made.WithPanel(lines("Probe hits",
		"How often each probe was hit, on all servers together. eviction_enter and eviction_return are hit in probe mode every-call. No threshold, because only the overhead matters.",
		"cps",
		query("A", allServers, "sum by (probe) (rate(evictscope_probe_hits_total{LABELS}[$__rate_interval]))", "{{probe}}")).
		Span(halfWidth))

	made.WithPanel(timeline("Probe mode",
		"every-call (green): every eviction call is counted and timed. evicting-only (blue): only evicting calls are. switched off (red): a check of what the probes measured failed, and nothing is probed.",
		modes,
		query("A", allServers, `max by (job, instance, server) (2 * evictscope_probe_mode{LABELS,mode="every-call"} or evictscope_probe_mode{LABELS,mode="evicting-only"})`, "{{instance}} {{server}}")).
		Height(7))

	made.WithPanel(rows("Where variables were found",
		"Where each variable of the eviction goal was found: dataflow (the machine code), dwarf (the debug information), or both, which agree. none (red): not found or switched off, and so not exported.",
		[]column{
			{"server", "Server", []dashboard.DynamicConfigValue{link()}},
			{"instance", "Instance", nil},
			{"job", "Job", nil},
			{"variable", "Variable", nil},
			{"method", "Method", []dashboard.DynamicConfigValue{
				property("mappings", mapping([]state{{"none", "none", red}, {"both", "both", green}, {"dataflow", "dataflow", green}, {"dwarf", "dwarf", green}})),
				property("custom.cellOptions", map[string]any{"type": "color-text"}),
			}},
		},
		[]string{"Time", "Value", "Value #A"},
		now("A", "max by (job, instance, server, variable, method) (evictscope_probe_plan_info{LABELS})")).
		Span(halfWidth))

	made.WithPanel(rows("Not found, or switched off",
		"What was not found in a server's executable (`evictscope inspect PID` says why), and servers whose probes are switched off because a check failed. Empty is good. Threshold: switched off is red.",
		[]column{
			{"server", "Server", []dashboard.DynamicConfigValue{link()}},
			{"instance", "Instance", nil},
			{"job", "Job", nil},
			{"item", "Not found", nil},
			{"reason", "Failed check", nil},
			{"Value #B", "Switched off", append(coloured(grey, step{1, red}), property("decimals", 0))},
		},
		[]string{"Time", "Value #A"},
		now("A", "max by (job, instance, server, item) (evictscope_not_found{LABELS})"),
		now("B", "max by (job, instance, server, reason) (evictscope_plan_withdrawn{LABELS}) > 0")).
		Span(halfWidth))

	made.WithPanel(lines("Read faults",
		"Failed reads of a server's memory (recipe, member, allocator), and evicting calls whose end was not seen (lost_exit). A few lost_exit are normal, for example when a server is stopped in a call. Any other is not. Threshold: any.",
		"cps",
		query("A", allServers, "sum by (instance, server, reason) (rate(evictscope_read_faults_total{LABELS}[$__rate_interval])) > 0 or sum by (reason) (rate(evictscope_read_faults_total{LABELS}[$__rate_interval]))", "{{instance}} {{server}} {{reason}}")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{0.001, orange})))

	made.WithPanel(lines("Checks of the goal variables",
		"Checks at evicting calls, and those that failed. The first failure switches the probes of that server off. allocator moves: calls during which other threads changed the allocator's counter, which is harmless. Threshold: any failure.",
		"cps",
		query("A", allServers, "sum by (check) (rate(evictscope_goal_checks_total{LABELS}[$__rate_interval]))", "{{check}}"),
		query("B", allServers, "sum by (check) (rate(evictscope_goal_check_failures_total{LABELS}[$__rate_interval]))", "{{check}} failed"),
		query("C", allServers, "sum(rate(evictscope_goal_allocator_moves_total{LABELS}[$__rate_interval]))", "allocator moves")).
		Span(halfWidth).
		OverrideByRegexp(".* failed", []dashboard.DynamicConfigValue{fixedColour(red)}))

	made.WithPanel(lines("Scrape time",
		"How long Prometheus took to scrape each agent. Threshold: 1 s. 64 servers should take a hundredth of it.",
		"s",
		query("A", allAgents, "scrape_duration_seconds{LABELS}", "{{instance}}")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{1, orange})))

	made.WithPanel(lines("Scrape size",
		"Samples in a scrape: 267 for each server that has had a burst, and 30 more in probe mode every-call. Threshold: 50,000, which is more than 150 servers.",
		"short",
		query("A", allAgents, "scrape_samples_scraped{LABELS}", "{{instance}}"),
		query("B", allServers, "count by (instance) (evictscope_server_info{LABELS})", "{{instance}} servers")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{50000, orange})))

	made.WithPanel(lines("CPU of the agent",
		"Share of one CPU. The agent counts whole seconds, so this is a mean of at least 5 minutes. Threshold: 2 %, the limit for 16 servers in a burst.",
		"percentunit",
		query("A", allAgents, "rate(process_cpu_seconds_total{LABELS}[$__rate_interval])", "{{instance}}")).
		Interval("5m").
		Span(halfWidth).
		Thresholds(thresholds(green, step{0.02, orange})).
		ThresholdsStyle(dashed()).
		AxisSoftMax(0.025))

	made.WithPanel(lines("Memory of the agent",
		"Resident memory. Threshold: 256 MiB, the most that the analysis of a new executable may take.",
		"bytes",
		query("A", allAgents, "process_resident_memory_bytes{LABELS}", "{{instance}}")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{256 << 20, orange})))

	made.WithPanel(lines("File descriptors",
		"Open descriptors as a share of the limit. Each probe of each server takes one. Thresholds: 80 % orange, 95 % red.",
		"percentunit",
		query("A", allAgents, "process_open_fds{LABELS} / process_max_fds{LABELS}", "{{instance}}")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{0.8, orange}, step{0.95, red})))

	made.WithPanel(lines("Threads",
		"Threads of each agent. When probes are removed, there is one for each server. Threshold: 1,024, the limit of the unit.",
		"none",
		query("A", allAgents, "process_threads{LABELS}", "{{instance}}")).
		Span(halfWidth).
		Thresholds(thresholds(green, step{1024, red})))

	made.WithPanel(rows("Agents",
		"Agents that are up, with their version and start. No threshold, because versions may differ during a roll-out.",
		[]column{
			{"instance", "Instance", nil},
			{"job", "Job", nil},
			{"version", "Version", nil},
			{"Value #B", "Started", []dashboard.DynamicConfigValue{property("unit", "dateTimeAsIso")}},
			{"Value #C", "Virtual memory", []dashboard.DynamicConfigValue{property("unit", "bytes")}},
		},
		[]string{"Time", "Value #A"},
		now("A", "max by (job, instance, version) (evictscope_build_info{LABELS})"),
		tableQuery("B", allAgents, "max by (job, instance) (process_start_time_seconds{LABELS}) * 1000").Instant(),
		tableQuery("C", allAgents, "max by (job, instance) (process_virtual_memory_bytes{LABELS})").Instant()))
	return made
}
