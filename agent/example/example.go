// Package example has objects of each kind, as a person would write them: for the reference, and for the REST page to begin with.
package example

import (
	_ "embed"
	"strings"

	"sluice.dev/sluice/agent/object"
)

//go:embed examples.yaml
var text string

// Text returns the objects in YAML. Together they are acceptable.
func Text() string { return text }

// Objects returns the same objects.
func Objects(r *object.Registry) ([]*object.Written, error) {
	written, err := r.Decode(strings.NewReader(text), "examples.yaml")
	if err == nil {
		err = r.Whole(written).Or()
	}
	return written, err
}
