// Generates the dashboards in the directory above, and validates them.
module evictscope/dashboards

go 1.21

require github.com/grafana/grafana-foundation-sdk/go v0.0.18
