// Package syntax stands in for Loki's: no dashboard here asks Loki anything, so every query in its
// language is an error.
package syntax

import (
	"errors"
	"time"
)

// Expr is a query.
type Expr interface{}

// SampleExpr is a query that yields numbers.
type SampleExpr = Expr

// What the linter looks into.
type (
	BinOpExpr struct {
		SampleExpr
		RHS SampleExpr
	}
	RangeAggregationExpr  struct{ Left *LogRangeExpr }
	VectorAggregationExpr struct{ Left SampleExpr }
	LabelReplaceExpr      struct{ Left SampleExpr }
	PipelineExpr          struct {
		Left        Expr
		MultiStages []Expr
	}
	LogRangeExpr struct {
		Left     Expr
		Interval time.Duration
	}
)

// ParseExpr refuses.
func ParseExpr(string) (Expr, error) {
	return nil, errors.New("this linter was built without Loki's parser")
}
