package main

import (
	_ "embed"
	"encoding/json"
	"strconv"
)

// alertTable has the names of the alerts, what each needs, and the numbers that they compare with. The agent reads the
// same file (agent/model/src/alerts.rs), and its tests compare it with the rules and with docs/ALERTS.md.
//
//go:embed alerts.json
var alertTable []byte

// threshold is a number that an alert compares with, and why it is what it is.
type threshold struct {
	Name, Value, Reason string
}

// thresholdsOfAlerts are all of them, in the order of the alerts. "The article" is GitLab's, 2022: bursts of 6 to
// 8 s, every 7 to 15 min, throughput down to 20 %, reclaim of 30 to 60 s. "The lab" is `cargo xtask lab`.
var thresholdsOfAlerts = func() []threshold {
	var table struct{ Thresholds []threshold }
	if err := json.Unmarshal(alertTable, &table); err != nil {
		// It is part of this program.
		panic(err)
	}
	return table.Thresholds
}()

// thresholdOf returns the value of a threshold, for a panel that shows it.
func thresholdOf(name string) float64 {
	for _, threshold := range thresholdsOfAlerts {
		if threshold.Name == name {
			value, err := strconv.ParseFloat(threshold.Value, 64)
			if err != nil {
				// The thresholds are constants of this program.
				panic(err)
			}
			return value
		}
	}
	panic("no threshold " + name)
}
