// Package config is the agent's configuration file.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/northbound"
)

// Config is what the file says. Everything has a default: an empty file is well.
type Config struct {
	// Where the command line connects to: unix:///PATH.
	Listen string `yaml:"listen"`
	// File that keeps what is wanted.
	Store      string      `yaml:"store"`
	Log        Log         `yaml:"log"`
	Audit      Audit       `yaml:"audit"`
	Dataplanes []Dataplane `yaml:"dataplanes"`
	// Priorities of owners where two want the same object; the higher counts, 0 if an owner is not here.
	Priorities  map[string]int `yaml:"priorities"`
	Northbounds []Northbound   `yaml:"-"`
}

// Log says what is logged, to standard error.
type Log struct {
	// debug, info, warn or error.
	Level string `yaml:"level"`
	// text for people, json for programs.
	Format string `yaml:"format"`
}

// Audit is where it is written down who changed what.
type Audit struct {
	// Empty: only in the log.
	File string `yaml:"file"`
	// Each line is on the disk before its request is answered.
	Sync bool `yaml:"sync"`
}

// Dataplane is one that the agent connects to.
type Dataplane struct {
	Name   string            `yaml:"name"`
	Labels map[string]string `yaml:"labels"`
	// unix:///PATH, or tcp://HOST:PORT with mutual TLS.
	Endpoint string `yaml:"endpoint"`
	TLS      TLS    `yaml:"tls"`
}

// TLS is files in PEM.
type TLS struct {
	Certificate string `yaml:"certificate"`
	Key         string `yaml:"key"`
	CA          string `yaml:"ca"`
}

// Northbound is an entry of the list: its type says what else it may have.
type Northbound struct {
	Type string
	// The owner of what it puts in; the type, if nothing is said.
	Name    string
	Section northbound.Section
}

// Types are the northbounds that there are, by name.
type Types map[string]func() northbound.Section

// Load reads a file. What is not said in it is left as it is in c.
func (c *Config) Load(path string, types Types) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	if err := c.Decode(bytes.NewReader(text), types); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// Decode is Load from a reader.
func (c *Config) Decode(in io.Reader, types Types) error {
	// The list's entries are decoded once their types are known.
	file := struct {
		*Config     `yaml:",inline"`
		Northbounds []yaml.Node `yaml:"northbounds"`
	}{Config: c}
	d := yaml.NewDecoder(in)
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return plain(err)
	}
	names := map[string]int{}
	for i := range file.Northbounds {
		n, err := decodeNorthbound(&file.Northbounds[i], types)
		if err != nil {
			return err
		}
		line := file.Northbounds[i].Line
		if first, twice := names[n.Name]; twice {
			return fmt.Errorf("line %d: northbounds: %q is the name of the one in line %d already; give one of them another name", line, n.Name, first)
		}
		names[n.Name] = line
		c.Northbounds = append(c.Northbounds, n)
	}
	return c.check()
}

func decodeNorthbound(node *yaml.Node, types Types) (Northbound, error) {
	var head struct {
		Type string         `yaml:"type"`
		Name string         `yaml:"name"`
		Rest map[string]any `yaml:",inline"`
	}
	if err := node.Decode(&head); err != nil {
		return Northbound{}, plain(err)
	}
	open, known := types[head.Type]
	if !known {
		return Northbound{}, fmt.Errorf("line %d: northbounds: type: found %q; accepted: %s", node.Line, head.Type,
			strings.Join(slices.Sorted(maps.Keys(types)), ", "))
	}
	n := Northbound{Type: head.Type, Name: head.Name, Section: open()}
	if n.Name == "" {
		n.Name = n.Type
	}
	if strings.ContainsAny(n.Name, "/ \t\n") || n.Name == "builtin" {
		return n, fmt.Errorf("line %d: northbounds: name: found %q; accepted: a word that is not \"builtin\"", node.Line, n.Name)
	}
	rest := *node
	rest.Content = nil
	for i := 0; i+1 < len(node.Content); i += 2 {
		if k := node.Content[i].Value; k != "type" && k != "name" {
			rest.Content = append(rest.Content, node.Content[i], node.Content[i+1])
		}
	}
	// A node's own Decode does not refuse unknown fields.
	text, err := yaml.Marshal(&rest)
	if err != nil {
		return n, fmt.Errorf("line %d: northbounds: %w", node.Line, err)
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(n.Section); err != nil && !errors.Is(err, io.EOF) {
		var several *yaml.TypeError
		what := err.Error()
		if errors.As(err, &several) {
			// Its lines count from the section's start, and would mislead.
			what = several.Errors[0]
			if _, after, found := strings.Cut(what, ": "); found {
				what = after
			}
		}
		return n, fmt.Errorf("line %d: northbounds: %s: %s", node.Line, n.Type, what)
	}
	if err := n.Section.Check(); err != nil {
		return n, fmt.Errorf("line %d: northbounds: %s: %w", node.Line, n.Type, err)
	}
	return n, nil
}

func (c *Config) check() error {
	if path, ok := strings.CutPrefix(c.Listen, "unix://"); !ok || !strings.HasPrefix(path, "/") {
		return fmt.Errorf("listen: found %q; accepted: unix:///PATH", c.Listen)
	}
	if levels := []string{"debug", "info", "warn", "error"}; !slices.Contains(levels, c.Log.Level) {
		return fmt.Errorf("log.level: found %q; accepted: %s", c.Log.Level, strings.Join(levels, ", "))
	}
	if formats := []string{"text", "json"}; !slices.Contains(formats, c.Log.Format) {
		return fmt.Errorf("log.format: found %q; accepted: %s", c.Log.Format, strings.Join(formats, ", "))
	}
	names := map[string]bool{}
	for i, d := range c.Dataplanes {
		switch {
		case d.Name == "":
			return fmt.Errorf("dataplanes[%d].name: is missing", i)
		case names[d.Name]:
			return fmt.Errorf("dataplanes[%d].name: %q is another's already", i, d.Name)
		case d.Endpoint == "":
			return fmt.Errorf("dataplanes[%d].endpoint: is missing; accepted: unix:///PATH or tcp://HOST:PORT", i)
		}
		names[d.Name] = true
	}
	return nil
}

// plain leaves out what the YAML library says of itself.
func plain(err error) error {
	var several *yaml.TypeError
	if errors.As(err, &several) {
		return errors.New(strings.Join(several.Errors, "; "))
	}
	return errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
}
