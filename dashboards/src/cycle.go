package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// phases in the order of the cycle.
var phases = []state{
	{"0", "not_saturated", green},
	{"1", "reclaim", blue},
	{"2", "saturated", red},
}

// phaseQuery returns the worst phase in each step. It uses the time counted for each phase, so that no
// burst is too short for the step.
const phaseQuery = `max by (job, instance, server) (
  2 * (evictscope_phase_seconds_total{LABELS,phase="saturated"} - evictscope_phase_seconds_total{LABELS,phase="saturated"} offset $__interval > bool 0)
  or
  (evictscope_phase_seconds_total{LABELS,phase="reclaim"} - evictscope_phase_seconds_total{LABELS,phase="reclaim"} offset $__interval > bool 0)
  or
  0 * evictscope_phase_seconds_total{LABELS,phase="not_saturated"}
)`

// perBurst returns what a burst added to a counter or to the sum of a histogram, in the step that counted
// the burst. If there were several, it returns the mean.
func perBurst(refID, sum, count string) *prometheus.DataqueryBuilder {
	return tableQuery(refID, oneServer, `(
  (`+sum+`{LABELS} - `+sum+`{LABELS} offset $__interval)
  / (`+count+`{LABELS} - `+count+`{LABELS} offset $__interval > 0)
)`).Interval(scrapeInterval)
}

func histogramPerBurst(refID, name string) *prometheus.DataqueryBuilder {
	return perBurst(refID, name+"_sum", name+"_count")
}

// finished returns the number of bursts of a kind, in each step that counted a burst of any kind.
func finished(refID, kind string) *prometheus.DataqueryBuilder {
	return tableQuery(refID, oneServer, `sum without (kind) (
  evictscope_bursts_total{LABELS,kind="`+kind+`"} - evictscope_bursts_total{LABELS,kind="`+kind+`"} offset $__interval
)
and on (job, instance, server)
(evictscope_burst_duration_seconds_count{LABELS} - evictscope_burst_duration_seconds_count{LABELS} offset $__interval > 0)`).
		Interval(scrapeInterval)
}

// evictionCycle is about one server: everything on one time axis, the phases above it.
func evictionCycle() *dashboard.DashboardBuilder {
	made := newDashboard("evictscope / Eviction cycle", cycleUID,
		"One Redis server in the cycle of eviction bursts: not_saturated, saturated, reclaim. All panels share the time axis.").
		Time("now-1h", "now").
		WithVariable(labelVariable("instance", "Instance", instanceQuery)).
		WithVariable(labelVariable("server", "Server",
			`label_values(evictscope_server_info{job=~"$job",instance=~"$instance"}, server)`)).
		Annotation(dashboard.NewAnnotationQueryBuilder().
			Name("Bursts").
			Datasource(dataSource()).
			Enable(true).
			IconColor(red).
			Target(query("Anno", oneServer, "evictscope_last_burst_start_timestamp_seconds{LABELS} * 1000", "").
				Interval(scrapeInterval)).
			UseValueForTime(true).
			TitleFormat("Burst begins").
			TextFormat("Redis server {{server}} of {{instance}}: first evicting call").
			TagKeys("server"))

	made.WithPanel(timeline("Phase",
		"Phase of the eviction cycle: not_saturated (green), reclaim (blue), saturated (red). Each step shows the worst phase in it, so no burst is too short to be seen.",
		phases,
		query("A", oneServer, phaseQuery, "{{server}}")))

	made.WithPanel(lines("Used memory against maxmemory",
		"Memory tracked by the allocator. Red dashed line: maxmemory, where evictions begin.",
		"bytes",
		query("A", oneServer, "evictscope_used_memory_bytes{LABELS}", "used memory"),
		query("B", oneServer, "evictscope_maxmemory_bytes{LABELS} > 0", "maxmemory")).
		OverrideByName("maxmemory", []dashboard.DynamicConfigValue{
			fixedColour(red),
			property("custom.lineStyle", map[string]any{"fill": "dash", "dash": []int{10, 10}}),
			property("custom.fillOpacity", 0),
		}))

	made.WithPanel(lines("Client buffers by class",
		"Input and output buffers and client structs. They count against maxmemory, so when they grow, keys are evicted. Redis updates its account about once a second. Dashed: the peak since the agent found the server. No threshold, because the normal size depends on the clients. The alert compares with the median of an hour.",
		"bytes",
		query("A", oneServer, "evictscope_client_buffers_bytes{LABELS}", "{{class}}"),
		query("B", oneServer, "evictscope_client_buffers_peak_bytes{LABELS}", "peak")).
		FillOpacity(30).
		Stacking(stacked()).
		OverrideByName("peak", []dashboard.DynamicConfigValue{
			fixedColour(grey),
			property("custom.stacking", map[string]any{"mode": "none"}),
			property("custom.lineStyle", map[string]any{"fill": "dash", "dash": []int{10, 10}}),
			property("custom.fillOpacity", 0),
		}))

	made.WithPanel(lines("Commands",
		"Commands a second, from the server's own counter. In the bursts of GitLab's article they fell to 20 %. Dashed: the mean of the last hour.",
		"ops",
		query("A", oneServer, "rate(evictscope_commands_processed_total{LABELS}[$__rate_interval])", "commands"),
		query("B", oneServer, "avg_over_time(server:evictscope_commands_processed:rate1m{LABELS}[1h])", "mean of an hour")).
		OverrideByName("mean of an hour", []dashboard.DynamicConfigValue{
			fixedColour(grey),
			property("custom.lineStyle", map[string]any{"fill": "dash", "dash": []int{10, 10}}),
			property("custom.fillOpacity", 0),
		}))

	made.WithPanel(lines("Eviction calls by kind",
		"Eviction calls a second. evicting: memory was over the limit. noop: it was not; these are counted only in probe mode every-call, so a gap means not counted. running: the call stopped at its time limit (maxmemory-eviction-tenacity). fail: nothing could be evicted, and writes fail. Any fail is too many.",
		"cps",
		query("A", oneServer, "sum by (kind) (rate(evictscope_eviction_calls_total{LABELS}[$__rate_interval]))", "{{kind}}"),
		query("B", oneServer, `sum by (result) (rate(evictscope_eviction_calls_total{LABELS,kind="evicting",result=~"running|fail"}[$__rate_interval]))`, "evicting, {{result}}")).
		OverrideByName("evicting, fail", []dashboard.DynamicConfigValue{fixedColour(red)}))

	made.WithPanel(buckets("Latency of evicting calls",
		"Evicting calls a second by duration. No client is answered during a call. Redis stops a call at 500 µs by default (maxmemory-eviction-tenacity 10).",
		"s",
		heatmapQuery(oneServer, `sum by (le) (rate(evictscope_eviction_call_duration_seconds_bucket{LABELS,kind="evicting"}[$__rate_interval]))`)))

	made.WithPanel(lines("Latency of evicting calls, p50 and p99",
		"Quantiles of the same histogram. Threshold: 500 µs, where Redis stops a call by default.",
		"s",
		query("A", oneServer, `histogram_quantile(0.5, sum by (le) (rate(evictscope_eviction_call_duration_seconds_bucket{LABELS,kind="evicting"}[$__rate_interval]))) >= 0`, "p50"),
		query("B", oneServer, `histogram_quantile(0.99, sum by (le) (rate(evictscope_eviction_call_duration_seconds_bucket{LABELS,kind="evicting"}[$__rate_interval]))) >= 0`, "p99")).
		Thresholds(thresholds(green, step{500e-6, orange})).
		ThresholdsStyle(dashed()).
		AxisSoftMax(600e-6))

	made.WithPanel(buckets("Eviction goal (mem_tofree)",
		"Evicting calls a second by the memory that each had to free. In a calm cache a call frees what one command has added. In a burst it frees as much as all waiting replies take.",
		"bytes",
		heatmapQuery(oneServer, "sum by (le) (rate(evictscope_mem_tofree_bytes_bucket{LABELS}[$__rate_interval]))")))

	made.WithPanel(lines("Main thread CPU by activity",
		"Share of one CPU that the main thread uses, in evicting calls and elsewhere. Threshold: 90 %, where it counts as saturated.",
		"percentunit",
		query("A", oneServer, "sum by (activity) (rate(evictscope_main_thread_cpu_seconds_total{LABELS}[$__rate_interval]))", "{{activity}}")).
		Max(1).
		FillOpacity(30).
		Stacking(stacked()).
		Thresholds(thresholds(green, step{0.9, orange})).
		ThresholdsStyle(dashed()).
		OverrideByName("eviction", []dashboard.DynamicConfigValue{fixedColour(red)}).
		OverrideByName("other", []dashboard.DynamicConfigValue{fixedColour(blue)}))

	seconds, bytes, short := property("unit", "s"), property("unit", "bytes"), property("decimals", 0)
	made.WithPanel(rows("Last bursts",
		"One row for each burst, at the time when its reclaim was over. If a step has several bursts, the row has their number and their means. The agent's log and /api/v1/bursts have each burst by itself. Thresholds: a self-amplifying burst is red; throughput is orange below 90 % and red below 50 % of what it was before.",
		[]column{
			{"Time", "Counted at", []dashboard.DynamicConfigValue{property("custom.width", 180)}},
			{"Value #A", "Self-amplifying", append(coloured(grey, step{1, red}), short)},
			{"Value #B", "Plain", []dashboard.DynamicConfigValue{short}},
			{"Value #C", "Saturated for", []dashboard.DynamicConfigValue{seconds}},
			{"Value #D", "Reclaim", []dashboard.DynamicConfigValue{seconds}},
			{"Value #E", "Throughput", append(coloured(red, step{0.5, orange}, step{0.9, grey}), property("unit", "percentunit"))},
			{"Value #F", "Client buffers grew by", []dashboard.DynamicConfigValue{bytes}},
			{"Value #G", "Memory reclaimed", []dashboard.DynamicConfigValue{bytes}},
		},
		[]string{"job", "instance", "server"},
		finished("A", "self_amplifying"),
		finished("B", "plain"),
		histogramPerBurst("C", "evictscope_burst_duration_seconds"),
		histogramPerBurst("D", "evictscope_reclaim_duration_seconds"),
		histogramPerBurst("E", "evictscope_burst_throughput_ratio"),
		histogramPerBurst("F", "evictscope_burst_client_buffer_growth_bytes"),
		histogramPerBurst("G", "evictscope_burst_reclaimed_bytes")).
		WithTransformation(dashboard.DataTransformerConfig{Id: "sortBy", Options: map[string]any{
			"fields": map[string]any{}, "sort": []map[string]any{{"field": "Counted at", "desc": true}},
		}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "limit", Options: map[string]any{"limitField": 100}}).
		SortBy(sortedBy("Counted at")).
		CellHeight(common.TableCellHeightSm))
	return made
}
