// SPDX-License-Identifier: Apache-2.0

// Package example has objects of each kind, as a person would write them: for the reference, and for the REST page to begin with.
package example

import (
	"embed"
	"strings"

	"sluice.dev/sluice/agent/object"
)

// Each concept has a file, with the name of its .proto.
//
//go:embed *.yaml
var files embed.FS

// Text returns the objects in YAML. Together they are acceptable.
func Text() (string, error) {
	all, err := files.ReadDir(".")
	if err != nil {
		return "", err
	}
	var texts []string
	for _, file := range all {
		text, err := files.ReadFile(file.Name())
		if err != nil {
			return "", err
		}
		texts = append(texts, strings.TrimSuffix(string(text), "\n")+"\n")
	}
	return strings.Join(texts, "---\n"), nil
}

// Objects returns the same objects, with their lines in Text.
func Objects(r *object.Registry) ([]*object.Written, error) {
	text, err := Text()
	if err != nil {
		return nil, err
	}
	written, err := r.Decode(strings.NewReader(text), "agent/example")
	if err == nil {
		err = r.Whole(written).Or()
	}
	return written, err
}
