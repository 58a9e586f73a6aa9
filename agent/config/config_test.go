package config

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/northbound"
)

type nothing struct {
	Where string `yaml:"where"`
	Often int    `yaml:"often"`
}

func (n *nothing) Check() error {
	if n.Where == "" {
		return errors.New("where: is missing")
	}
	return nil
}

func (n *nothing) Open() northbound.Northbound { return n }

func (*nothing) Run(context.Context, northbound.Environment) error { return nil }

var types = Types{"nothing": func() northbound.Section { return &nothing{Often: 7} }}

func start() *Config {
	return &Config{Listen: "unix:///run/a.sock", Store: "/s", Log: Log{Level: "info", Format: "text"}}
}

func TestWhatIsNotSaidKeepsItsDefault(t *testing.T) {
	for _, text := range []string{"", "# nothing\n", "{}\n", "store: /s\n"} {
		c := start()
		if err := c.Decode(strings.NewReader(text), types); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if c.Listen != "unix:///run/a.sock" || c.Store != "/s" || c.Log.Format != "text" {
			t.Errorf("%q: %+v", text, c)
		}
	}
}

func TestEachNorthboundGetsItsSection(t *testing.T) {
	c := start()
	err := c.Decode(strings.NewReader(`
log: {format: json}
dataplanes:
  - {name: east, endpoint: "unix:///run/e.sock", labels: {site: bonn}}
priorities: {people: 10}
northbounds:
  - {type: nothing, where: here}
  - {type: nothing, name: other, where: there, often: 3}
`), types)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Northbounds) != 2 || c.Northbounds[0].Name != "nothing" || c.Northbounds[1].Name != "other" {
		t.Fatalf("%+v", c.Northbounds)
	}
	if first, second := c.Northbounds[0].Section.(*nothing), c.Northbounds[1].Section.(*nothing); *first != (nothing{"here", 7}) || *second != (nothing{"there", 3}) {
		t.Errorf("%+v %+v", first, second)
	}
	if c.Log != (Log{"info", "json"}) || c.Dataplanes[0].Labels["site"] != "bonn" || c.Priorities["people"] != 10 {
		t.Errorf("%+v", c)
	}
}

func TestAMistakeIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"listn: x\n":                    "listn",
		"listen: tcp://1.2.3.4:5\n":     "accepted: unix:///PATH",
		"log: {level: loud}\n":          `found "loud"; accepted: debug, info`,
		"log: {format: xml}\n":          "accepted: text, json",
		"dataplanes: [{name: a}]\n":     "dataplanes[0].endpoint: is missing",
		"dataplanes: [{endpoint: a}]\n": "dataplanes[0].name: is missing",
		"dataplanes: [{name: a, endpoint: x}, {name: a, endpoint: y}]\n":           "another's already",
		"northbounds: [{type: carrier-pigeon}]\n":                                  `found "carrier-pigeon"; accepted: nothing`,
		"northbounds: [{type: nothing}]\n":                                         "line 1: northbounds: nothing: where: is missing",
		"northbounds: [{type: nothing, where: x, why: y}]\n":                       "field why not found",
		"northbounds: [{type: nothing, where: x, often: never}]\n":                 "cannot unmarshal",
		"northbounds:\n- {type: nothing, where: x}\n- {type: nothing, where: y}\n": `line 3: northbounds: "nothing" is the name of the one in line 2`,
		"northbounds: [{type: nothing, name: builtin, where: x}]\n":                "a word",
		"northbounds: 7\n": "cannot unmarshal",
		"\tx: y\n":         "cannot start any token",
	} {
		err := start().Decode(strings.NewReader(text), types)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
