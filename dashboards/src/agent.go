package main

import "github.com/grafana/grafana-foundation-sdk/go/dashboard"

// agent returns the dashboard about evictscope itself: what it costs, which servers it covers, and what it has not
// found.
func agent() *dashboard.DashboardBuilder {
	made := newDashboard("evictscope / Agent", agentUID,
		"evictscope itself: what it costs the servers and the host, which servers it watches and which not, and what it has not found.").
		Time("now-6h", "now").
		WithVariable(anyOf(instances()))

	numbers := number("All agents",
		"agents, and agents down: those that Prometheus can scrape, and those that it cannot. watched, and not watched: servers that run beside these agents. something not found: servers of which something is not known; the tables below say what. cost: the highest of any server now, as a share of its budget (--overhead-budget).",
		"none", thresholds(grey),
		query("A", allAgents, "count(up{LABELS} == 1) or vector(0)", "agents"),
		query("B", allAgents, "count(up{LABELS} == 0) or vector(0)", "agents down"),
		query("C", allServers, "count(evictscope_server_info{LABELS})", "watched"),
		query("D", allServers, "sum(evictscope_servers_unwatched{LABELS})", "not watched"),
		query("E", allServers, "count(count by (SERVER) (evictscope_not_found{LABELS} or evictscope_plan_withdrawn{LABELS} > 0)) or vector(0)", "something not found"),
		query("F", allServers, "max("+costOfBudget+")", "cost, of the budget")).
		GridPos(at(0, 0, fullWidth, numbersHeight))
	forEach(numbers, []string{"agents down", "not watched", "something not found", "cost, of the budget"}, steps(green, step{1, orange}))
	made.WithPanel(numbers.OverrideByName("cost, of the budget", []dashboard.DynamicConfigValue{property("unit", "percentunit")}))

	cost(made, 3)
	coverage(made, 17)
	for i, row := range []*dashboard.RowBuilder{probes(), process()} {
		made.WithRow(row.Collapsed(true).GridPos(at(0, screenHeight+uint32(i), fullWidth, 1)))
	}
	return made
}

const costOfBudget = "evictscope_overhead_ratio{LABELS} / (evictscope_overhead_budget_ratio{LABELS} > 0)"

// cost shows what evictscope takes from the servers and the host.
func cost(made *dashboard.DashboardBuilder, y uint32) {
	made.WithPanel(lines("Cost to the servers, of the budget",
		"What the probes cost the server that pays most on each host, as a share of its budget (--overhead-budget, 1 % of the main thread by default): mean of 10 s. Threshold: the budget. In probe mode auto no server stays above it.",
		"percentunit",
		query("A", allServers, "max by (AGENT) ("+costOfBudget+")", "{{instance}}")).
		Thresholds(thresholds(green, step{1, orange})).
		ThresholdsStyle(dashed()).
		GridPos(at(0, y, halfWidth, 7)))
	made.WithPanel(lines("CPU of the agent",
		"Share of one CPU. Threshold: 2 %, the limit for 16 servers in a burst. The agent counts whole seconds, so this is a mean of at least 5 minutes.",
		"percentunit",
		query("A", allAgents, "rate(process_cpu_seconds_total{LABELS}[$__rate_interval])", "{{instance}}")).
		Interval("5m").
		Thresholds(thresholds(green, step{0.02, orange})).
		ThresholdsStyle(dashed()).
		AxisSoftMax(0.025).
		GridPos(at(halfWidth, y, halfWidth, 7)))
	made.WithPanel(lines("Memory of the agent",
		"Resident memory. Threshold: 256 MiB, the most that the analysis of a new executable may take.",
		"bytes",
		query("A", allAgents, "process_resident_memory_bytes{LABELS}", "{{instance}}")).
		Thresholds(thresholds(green, step{256 << 20, orange})).
		ThresholdsStyle(dashed()).
		GridPos(at(0, y+7, halfWidth, 7)))
	made.WithPanel(lines("Series of a server",
		"Samples in a scrape, divided by the servers. At most 225; where there are few servers, those of the agent itself add to it.",
		"short",
		query("A", allAgents, "scrape_samples_scraped{LABELS} / on (AGENT) count by (AGENT) (evictscope_server_info{LABELS})", "{{instance}}")).
		GridPos(at(halfWidth, y+7, 6, 7)))
	made.WithPanel(lines("Scrape time",
		"How long Prometheus took to scrape each agent. Threshold: 1 s.",
		"s",
		query("A", allAgents, "scrape_duration_seconds{LABELS}", "{{instance}}")).
		Thresholds(thresholds(green, step{1, orange})).
		ThresholdsStyle(dashed()).
		GridPos(at(18, y+7, 6, 7)))
}

// coverage shows which servers are not watched, and what is not known about those that are.
func coverage(made *dashboard.DashboardBuilder, y uint32) {
	made.WithPanel(rows("Not watched",
		"Servers that run beside an agent and cannot be watched, by reason. `evictscope check` on that host names them. Empty is good.",
		[]column{
			{"instance", "Instance", nil},
			{"job", "Job", nil},
			{"reason", "Reason", nil},
			{"Value", "Servers", coloured(grey, step{1, orange})},
		},
		[]string{"Time"},
		now("A", "sum by (AGENT, reason) (evictscope_servers_unwatched{LABELS}) > 0")).
		GridPos(at(0, y, 8, 9)))
	made.WithPanel(rows("Not found, or switched off",
		"What was not found in a server's executable (`evictscope inspect PID` says why), and servers whose probes are switched off because a check of what they measured failed. Empty is good.",
		[]column{
			{"server", "Server", []dashboard.DynamicConfigValue{link("Eviction cycle of this server", cycleUID, "Job", "Instance", "Server")}},
			{"instance", "Instance", nil},
			{"job", "Job", nil},
			{"item", "Not found", nil},
			{"reason", "Failed check", nil},
			{"Value #B", "Switched off", append(coloured(grey, step{1, orange}), property("decimals", 0))},
		},
		[]string{"Time", "Value #A"},
		now("A", "max by (SERVER, item) (evictscope_not_found{LABELS})"),
		now("B", "max by (SERVER, reason) (evictscope_plan_withdrawn{LABELS}) > 0")).
		GridPos(at(8, y, 10, 9)))
	made.WithPanel(lines("Evicting calls observed",
		"The server of each agent whose evicting calls are observed for the least share of the time: nearly 100 %, and less in probe mode sampled. Panels and rules divide every rate of evicting calls by it, so the rates are right at any share; the lower it is, the rougher they are.",
		"percentunit",
		query("A", allServers, `min by (AGENT) (rate(evictscope_observed_seconds_total{LABELS,kind="evicting"}[$__rate_interval]))`, "{{instance}}")).
		AxisSoftMax(1).
		GridPos(at(18, y, 6, 9)))
}

// probes returns a row about the probes.
func probes() *dashboard.RowBuilder {
	return dashboard.NewRowBuilder("Probes").
		WithPanel(lines("Servers by probe mode",
			"every-call: every eviction call is counted and timed. evicting-only: only evicting calls are. sampled: only evicting calls are, part of the time, because all of them would cost more than the budget. A server whose probes are switched off is in none.",
			"none",
			query("A", allServers, "sum by (mode) (evictscope_probe_mode{LABELS})", "{{mode}}")).
			FillOpacity(40).
			Stacking(stacked()).
			Span(halfWidth)).
		WithPanel(lines("Probe hits",
			"How often each probe was hit, on all servers together. eviction_enter and eviction_return are hit in probe mode every-call.",
			"cps",
			query("A", allServers, "sum by (probe) (rate(evictscope_probe_hits_total{LABELS}[$__rate_interval]))", "{{probe}}")).
			Span(halfWidth)).
		WithPanel(lines("Read faults",
			"Failed reads of a server's memory (recipe, member, allocator), and evicting calls whose end was not seen (lost_exit). A few lost_exit are normal, for example when a server is stopped in a call. Any other is not.",
			"cps",
			query("A", allServers, `sum by (reason) (rate(evictscope_read_faults_total{LABELS}[$__rate_interval])) or label_replace(vector(0), "reason", "none", "", "")`, "{{reason}}")).
			Span(halfWidth)).
		WithPanel(rows("Where variables were found",
			"Servers by where each variable of the eviction goal was found: dataflow (the machine code), dwarf (the debug information), or both, which agree. none: not found or switched off, and so not exported.",
			[]column{
				{"variable", "Variable", nil},
				{"method", "Method", []dashboard.DynamicConfigValue{property("mappings", mapping([]state{{"none", "none", orange}})), colouredText()}},
				{"Value", "Servers", nil},
			},
			[]string{"Time"},
			now("A", "sum by (variable, method) (evictscope_probe_plan_info{LABELS})")).
			Height(7).Span(halfWidth))
}

// process returns a row about the agents as processes.
func process() *dashboard.RowBuilder {
	return dashboard.NewRowBuilder("Processes").
		WithPanel(rows("Agents",
			"Agents that are up, with their version and start, and how long before the last scrape the loop that finds servers had turned. Threshold: 10 s, from which on /-/healthy fails. Versions may differ during a roll-out.",
			[]column{
				{"instance", "Instance", nil},
				{"job", "Job", nil},
				{"version", "Version", nil},
				{"Value #B", "Started", []dashboard.DynamicConfigValue{property("unit", "dateTimeAsIso")}},
				{"Value #C", "Virtual memory", []dashboard.DynamicConfigValue{property("unit", "bytes")}},
				{"Value #D", "Loop last turned before the scrape", append(coloured(grey, step{10, orange}), property("unit", "s"))},
			},
			[]string{"Time", "Value #A"},
			now("A", "max by (AGENT, version) (evictscope_build_info{LABELS})"),
			tableQuery("B", allAgents, "max by (AGENT) (process_start_time_seconds{LABELS}) * 1000").Instant(),
			tableQuery("C", allAgents, "max by (AGENT) (process_virtual_memory_bytes{LABELS})").Instant(),
			now("D", "clamp_min(max by (AGENT) (timestamp(evictscope_loop_last_turn_timestamp_seconds{LABELS}) - evictscope_loop_last_turn_timestamp_seconds{LABELS}), 0)")).
			Height(7)).
		WithPanel(lines("File descriptors",
			"Open descriptors as a share of the limit. Each probe of each server takes one. Threshold: 80 %.",
			"percentunit",
			query("A", allAgents, "process_open_fds{LABELS} / process_max_fds{LABELS}", "{{instance}}")).
			Thresholds(thresholds(green, step{0.8, orange})).
			ThresholdsStyle(dashed()).
			Span(halfWidth)).
		WithPanel(lines("Threads",
			"Threads of each agent: one for each server, and more for a moment when probes are taken off. Threshold: 1,024, the limit of the unit.",
			"none",
			query("A", allAgents, "process_threads{LABELS}", "{{instance}}")).
			Thresholds(thresholds(green, step{1024, orange})).
			ThresholdsStyle(dashed()).
			Span(halfWidth))
}
