package main

// Expressions that several panels share.

// phases in the order of the cycle. None of them is red: a calm cache is in saturated forever.
var phases = []state{
	{"0", "not_saturated", green},
	{"1", "reclaim", blue},
	{"2", "saturated", purple},
}

// impacts continue the numbers of the phases. Only they are red.
var impacts = []state{
	{"3", "stalled", red},
	{"4", "evictions fail", darkRed},
}

// activities are what the main thread does.
var activities = []state{
	{name: "eviction", colour: orange},
	{name: "expire", colour: purple},
	{name: "other", colour: blue},
	{name: "waiting for a CPU", colour: yellow},
}

// causes are what stalls clients, in the same colours.
var causes = []state{
	{name: "eviction", colour: orange},
	{name: "expire", colour: purple},
	{name: "commands", colour: blue},
	{name: "cpu", colour: yellow},
	{name: "blocked", colour: red},
	{name: "unknown", colour: grey},
}

// meanWait is how long a request waits on average, by Little's law.
const meanWait = `sum by (SERVER) (rate(evictscope_client_wait_seconds_total{LABELS}[$__rate_interval])) / (sum by (SERVER) (rate(evictscope_commands_processed_total{LABELS}[$__rate_interval])) > 0)`

// phaseNow returns what a server is doing: its phase, or the impact of the last minute, which is a stall of a second
// or more by any cause, or an eviction call that failed.
const phaseNow = `max by (SERVER) (
  4 * (increase(evictscope_eviction_calls_total{LABELS,result="fail"}[1m]) > bool 0)
  or
  3 * (sum without (cause) (increase(evictscope_stall_seconds_total{LABELS}[1m])) >= bool 1)
  or
  2 * evictscope_phase{LABELS,phase="saturated"}
  or
  evictscope_phase{LABELS,phase="reclaim"}
  or
  0 * evictscope_phase{LABELS,phase="not_saturated"}
)`

// phaseInStep returns the last phase of the cycle that occurs in each step. It uses the time counted for each phase, so
// that no burst is too short for the step.
var phaseInStep = `max by (SERVER) (
  2 * (` + inStep(`evictscope_phase_seconds_total{LABELS,phase="saturated"}`) + ` > bool 0)
  or
  (` + inStep(`evictscope_phase_seconds_total{LABELS,phase="reclaim"}`) + ` > bool 0)
  or
  0 * evictscope_phase_seconds_total{LABELS,phase="not_saturated"}
)`

// impactInStep returns the worst impact in each step, as numbered above, or -1 for none. It uses counters for
// the same reason.
var impactInStep = `max by (SERVER) (
  5 * (` + inStep(`evictscope_eviction_calls_total{LABELS,result="fail"}`) + ` > bool 0)
  or
  4 * (` + inStep(`evictscope_stall_seconds_total{LABELS}`) + ` > bool 0)
) - 1`

// saturation returns the memory that counts against the limit, as a share of it, where the limit applies. Where it is not
// known what does not count, it is taken as 0.
const saturation = `((` + countedMemory + `) / (evictscope_maxmemory_bytes{LABELS} > 0) unless ignoring (role, applies) evictscope_server_role_info{LABELS,applies="no"})`

const countedMemory = `evictscope_used_memory_bytes{LABELS} - (evictscope_not_counted_memory_bytes{LABELS} or 0 * evictscope_used_memory_bytes{LABELS})`

// expiredMemory estimates the memory of keys that have expired and are still held. The recording rule of the same
// formula (rules/recording.yaml) says what it needs and how wrong it can be.
const expiredMemory = `(evictscope_expired_held_ratio{LABELS} or evictscope_expire_stale_ratio{LABELS}) * (
  evictscope_used_memory_bytes{LABELS}
  - (sum without (class) (evictscope_client_buffers_bytes{LABELS}) or 0 * evictscope_used_memory_bytes{LABELS})
)`

// perObserved divides rates that count evicting calls of one server by the share of the time in which these
// are observed: in the probe mode sampled, that is a part of it. There is no value where nothing was observed.
func perObserved(rates string) string {
	return `(` + rates + `) / on () group_left () (sum(rate(evictscope_observed_seconds_total{LABELS,kind="evicting"}[$__rate_interval])) > 0)`
}

// histogram has the name of a histogram, and the labels to select by. Prometheus 3 can turn ours into native histograms
// when it scrapes them (convert_classic_histograms_to_nhcb). Then it has no series of buckets, sums and counts, and the
// second half of each expression below answers.
type histogram struct{ name, labels string }

// rates returns the rates of its buckets. Where Prometheus stores both forms, only the classic one answers.
func (h histogram) rates() string {
	return `sum by (le) (rate(` + h.name + `_bucket{` + h.labels + `}[$__rate_interval])) or on () sum(rate(` + h.name + `{` + h.labels + `}[$__rate_interval]))`
}

// quantile returns one of its quantiles. `>= 0` drops the NaN of a time without observations.
func (h histogram) quantile(share string) string {
	return `histogram_quantile(` + share + `, sum by (le) (rate(` + h.name + `_bucket{` + h.labels + `}[$__rate_interval]))) >= 0
or
histogram_quantile(` + share + `, sum(rate(` + h.name + `{` + h.labels + `}[$__rate_interval]))) >= 0`
}

// quantileBy returns one of its quantiles for each value of a label.
func (h histogram) quantileBy(label, share string) string {
	return `histogram_quantile(` + share + `, sum by (` + label + `, le) (rate(` + h.name + `_bucket{` + h.labels + `}[$__rate_interval]))) >= 0
or
histogram_quantile(` + share + `, sum by (` + label + `) (rate(` + h.name + `{` + h.labels + `}[$__rate_interval]))) >= 0`
}

// countBy returns how many values a second it observed, for each value of a label.
func (h histogram) countBy(label string) string {
	return `sum by (` + label + `) (rate(` + h.name + `_count{` + h.labels + `}[$__rate_interval]))
or
histogram_count(sum by (` + label + `) (rate(` + h.name + `{` + h.labels + `}[$__rate_interval])))`
}

// meanBy returns the mean of what it observed recently, for each value of a label, and nothing without an observation.
func (h histogram) meanBy(label string) string {
	native := `sum by (` + label + `) (rate(` + h.name + `{` + h.labels + `}[$__rate_interval]))`
	return `sum by (` + label + `) (rate(` + h.name + `_sum{` + h.labels + `}[$__rate_interval])) / (sum by (` + label + `) (rate(` + h.name + `_count{` + h.labels + `}[$__rate_interval])) > 0)
or
histogram_sum(` + native + `) / (histogram_count(` + native + `) > 0)`
}

// mean returns the mean of what it observed in each step, and nothing for a step without.
func (h histogram) mean() string {
	classic := `(` + inStep(h.name+`_sum{`+h.labels+`}`) + `) / (` + inStep(h.name+`_count{`+h.labels+`}`) + ` > 0)`
	// The offset belongs to the series, not to the function.
	now := h.name + `{` + h.labels + `}`
	before := now + ` offset $__interval`
	native := `(histogram_sum(` + now + `) - histogram_sum(` + before + `)) / (histogram_count(` + now + `) - histogram_count(` + before + `) > 0)`
	return classic + "\nor\n" + native
}

// inStep returns what each step has added to a counter.
func inStep(counter string) string {
	return counter + ` - ` + counter + ` offset $__interval`
}
