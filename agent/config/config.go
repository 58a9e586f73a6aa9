// SPDX-License-Identifier: Apache-2.0

// Package config is the agent's configuration file.
package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"sluice.dev/sluice/agent/certificate"
	"sluice.dev/sluice/agent/dataplane"
	"sluice.dev/sluice/agent/lease"
	"sluice.dev/sluice/agent/module"
	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

// Config is the content of the configuration file. Everything has a default: an empty file is valid.
type Config struct {
	// Where the command line connects to: unix:///PATH.
	Listen string `yaml:"listen"`
	// The file with the configuration and its history.
	Store      string      `yaml:"store"`
	Log        Log         `yaml:"log"`
	Audit      Audit       `yaml:"audit"`
	Dataplanes []Dataplane `yaml:"dataplanes"`
	// Priorities of owners of the same object; the higher counts, 0 if an owner is not here.
	Priorities map[string]int `yaml:"priorities"`
	// Network functions in other processes; nil: none can attach.
	Modules *module.Section `yaml:"modules"`
	// Which of several agents drives the data planes; nil: this one does, and there is no other.
	Lease       *lease.Section `yaml:"lease"`
	Northbounds []Northbound   `yaml:"-"`
}

// Log configures the log on standard error.
type Log struct {
	// debug, info, warn or error.
	Level string `yaml:"level"`
	// text for people, json for programs.
	Format string `yaml:"format"`
}

// Audit configures the log of changes.
type Audit struct {
	// Empty: only in the log.
	File string `yaml:"file"`
	// Each line is on the disk before its request is answered.
	Sync bool `yaml:"sync"`
}

// Dataplane is a data plane that the agent connects to.
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
	// Patterns of names, one of which the data plane's certificate has; none: any that is for the endpoint's host.
	ServerNames certificate.Names `yaml:"serverNames"`
}

// Northbound is an entry of the list. Its type decides its other fields.
type Northbound struct {
	Type string
	// The owner of its objects; by default the type.
	Name    string
	Section northbound.Section
}

// Types are the northbounds that there are, by name.
type Types map[string]func() northbound.Section

// Load reads a file. Settings that the file does not have stay as they are in c.
func (c *Config) Load(path string, types Types) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	err = c.Decode(bytes.NewReader(text), types)
	for _, e := range object.AllErrors(err) {
		e.File = path
	}
	return err
}

// Decode is Load from a reader. Its error is object.Errors.
func (c *Config) Decode(in io.Reader, types Types) error {
	var document yaml.Node
	if err := yaml.NewDecoder(in).Decode(&document); err != nil && !errors.Is(err, io.EOF) {
		return notYAML(err)
	}
	d := &decoder{lines: map[string]int{}}
	if len(document.Content) > 0 {
		switch top := resolve(document.Content[0]); {
		case top.Kind == yaml.ScalarNode && top.Tag == "!!null":
		case top.Kind != yaml.MappingNode:
			names, _ := fieldsOf(reflect.TypeFor[Config]())
			d.fail(top.Line, "", "not a configuration", found(top), "a mapping with "+strings.Join(append(names, "northbounds"), ", "))
		default:
			d.fields(top, reflect.ValueOf(c).Elem(), "", "northbounds")
			for i := 0; i+1 < len(top.Content); i += 2 {
				if top.Content[i].Value == "northbounds" {
					d.northbounds(resolve(top.Content[i+1]), c, types)
				}
			}
		}
	}
	c.check(d)
	return d.result()
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func notYAML(err error) error {
	words := err.Error()
	e := &object.Error{Problem: "not YAML: " + words}
	if m := yamlLine.FindStringSubmatch(words); m != nil {
		e.Problem = "not YAML: " + words[len(m[0]):]
		e.Line, _ = strconv.Atoi(m[1])
	}
	return object.Errors{e}
}

func (d *decoder) northbounds(list *yaml.Node, c *Config, types Types) {
	known := slices.Sorted(maps.Keys(types))
	const entry = "a list, each element a mapping with type, name and what the type has"
	if list.Kind != yaml.SequenceNode {
		if list.Tag != "!!null" {
			d.fail(list.Line, "northbounds", "not a list", found(list), entry)
		}
		return
	}
	names := map[string]int{}
	for i, element := range list.Content {
		n, path := resolve(element), "northbounds["+strconv.Itoa(i)+"]"
		d.lines[path] = element.Line
		if n.Kind != yaml.MappingNode {
			d.fail(n.Line, path, "not a mapping", found(n), "a mapping with type, name and what the type has")
			continue
		}
		var head struct {
			Type string `yaml:"type"`
			Name string `yaml:"name"`
		}
		for k := 0; k+1 < len(n.Content); k += 2 {
			key, value := n.Content[k], resolve(n.Content[k+1])
			if field := path + "." + key.Value; key.Value == "type" || key.Value == "name" {
				d.lines[field] = key.Line
				at := &head.Type
				if key.Value == "name" {
					at = &head.Name
				}
				d.value(value, reflect.ValueOf(at).Elem(), field)
			}
		}
		open, there := types[head.Type]
		if !there {
			if head.Type == "" {
				d.failAt(path+".type", "missing", "", strings.Join(known, ", "))
			} else {
				d.choice(path+".type", head.Type, known...)
			}
			continue
		}
		way := Northbound{Type: head.Type, Name: cmp.Or(head.Name, head.Type), Section: open()}
		if strings.ContainsAny(way.Name, "/ \t\n") || way.Name == "builtin" {
			d.failAt(path+".name", "not a name", strconv.Quote(way.Name), "a word that is not \"builtin\"")
		}
		if first, twice := names[way.Name]; twice {
			d.failAt(path+".name", fmt.Sprintf("the northbound in line %d has this name already", first), strconv.Quote(way.Name), "another name")
		}
		names[way.Name] = element.Line
		before := len(d.errs)
		d.fields(n, reflect.ValueOf(way.Section).Elem(), path, "type", "name")
		if len(d.errs) == before {
			if err := way.Section.Check(); err != nil {
				d.section(path, err)
			}
		}
		c.Northbounds = append(c.Northbounds, way)
	}
}

func (c *Config) check(d *decoder) {
	unread := slices.ContainsFunc(d.errs, func(e *object.Error) bool { return strings.HasPrefix(e.Field, "dataplanes") })
	if path, ok := strings.CutPrefix(c.Listen, "unix://"); !ok || !strings.HasPrefix(path, "/") {
		d.failAt("listen", "not where an agent can listen", strconv.Quote(c.Listen), "unix:///PATH")
	}
	if c.Store == "" && d.lines["store"] > 0 {
		d.failAt("store", "empty", "", "a file's path")
	}
	d.choice("log.level", c.Log.Level, "debug", "info", "warn", "error")
	if c.Modules != nil && !slices.ContainsFunc(d.errs, func(e *object.Error) bool { return strings.HasPrefix(e.Field, "modules") }) {
		if err := c.Modules.Check(); err != nil {
			d.section("modules", err)
		}
	}
	if c.Lease != nil && !slices.ContainsFunc(d.errs, func(e *object.Error) bool { return strings.HasPrefix(e.Field, "lease") }) {
		if err := c.Lease.Check(); err != nil {
			d.section("lease", err)
		}
	}
	d.choice("log.format", c.Log.Format, "text", "json")
	if unread {
		return // missing fields may be on unreadable lines
	}
	names := map[string]bool{}
	for i, p := range c.Dataplanes {
		path := "dataplanes[" + strconv.Itoa(i) + "]"
		switch {
		case p.Name == "":
			d.failAt(path+".name", "missing", "", "a name of its own")
		case names[p.Name]:
			d.failAt(path+".name", "used already", strconv.Quote(p.Name), "a name of its own")
		}
		names[p.Name] = true
		const accepted = "unix:///PATH, or tcp://HOST:PORT with tls"
		network, ok := dataplane.Network(p.Endpoint)
		switch tls := p.TLS; {
		case p.Endpoint == "":
			d.failAt(path+".endpoint", "missing", "", accepted)
		case !ok:
			d.failAt(path+".endpoint", "not where a data plane can listen", strconv.Quote(p.Endpoint), accepted)
		case network == "tcp" && (tls.Certificate == "" || tls.Key == "" || tls.CA == ""):
			d.failAt(path+".tls", "missing, or not all of it: over TCP both sides show certificates", "", "certificate, key and ca, each a file's path")
		case network == "unix" && (tls.Certificate != "" || tls.Key != "" || tls.CA != "" || len(tls.ServerNames) > 0):
			d.failAt(path+".tls", "no effect: a Unix socket is not encrypted", "", "no tls, or an endpoint tcp://HOST:PORT")
		}
		if err := p.TLS.ServerNames.Check("serverNames"); err != nil {
			d.section(path+".tls", err)
		}
	}
}
