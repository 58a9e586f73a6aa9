// SPDX-License-Identifier: Apache-2.0

package config

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/agent/northbound"
	"sluice.dev/sluice/agent/object"
)

type nothing struct {
	Where string `yaml:"where"`
	Often int    `yaml:"often"`
	Most  int64  `yaml:"most"`
}

func (n *nothing) Check() error {
	if n.Where == "" {
		return object.Mistake("where", "missing", "", "")
	}
	if n.Often < 0 {
		return errors.New("disk: quota exceeded") // of no field
	}
	return nil
}

func (n *nothing) Open() northbound.Northbound { return n }

func (*nothing) Run(context.Context, northbound.Environment) error { return nil }

var types = Types{"nothing": func() northbound.Section { return &nothing{Often: 7} }}

func start() *Config {
	return &Config{Listen: "unix:///run/a.sock", Store: "/s", Log: Log{Level: "info", Format: "text"}}
}

func TestAbsentFieldsKeepTheirDefaults(t *testing.T) {
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
  - {type: nothing, name: other, where: there, often: 3, most: 5000000000}
`), types)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Northbounds) != 2 || c.Northbounds[0].Name != "nothing" || c.Northbounds[1].Name != "other" {
		t.Fatalf("%+v", c.Northbounds)
	}
	if first, second := c.Northbounds[0].Section.(*nothing), c.Northbounds[1].Section.(*nothing); *first != (nothing{"here", 7, 0}) || *second != (nothing{"there", 3, 5_000_000_000}) {
		t.Errorf("%+v %+v", first, second)
	}
	if c.Log != (Log{"info", "json"}) || c.Dataplanes[0].Labels["site"] != "bonn" || c.Priorities["people"] != 10 {
		t.Errorf("%+v", c)
	}
}

func TestAMistakeIsNamedWithLineFieldAndMend(t *testing.T) {
	const no = "there is no such field; did you mean "
	for text, want := range map[string][]string{
		"# first\nlistn: x\n":           {"line 2: listn: " + no + "listen? Accepted: northbounds, listen, store, log, audit, dataplanes, priorities"},
		"listen: tcp://1.2.3.4:5\n":     {`line 1: listen: not where an agent can listen: found "tcp://1.2.3.4:5"; accepted: unix:///PATH`},
		"listen: [1]\n":                 {"line 1: listen: not the right type: found a list; accepted: a string"},
		"listen: 7\n":                   {"line 1: listen: not the right type: found 7; accepted: a string"},
		"store: ''\n":                   {"line 1: store: empty; accepted: a file's path"},
		"log:\n  level: inf\n":          {`line 2: log.level: unknown word; did you mean info? Found "inf"; accepted: debug, info, warn, error`},
		"log: {format: xml}\n":          {`line 1: log.format: unknown word: found "xml"; accepted: text, json`},
		"log: high\n":                   {`line 1: log: not the right type: found "high"; accepted: a mapping with level, format`},
		"log: {level: info}\nlog: {}\n": {"line 2: log: duplicate field; accepted: each field once"},
		"priorities:\n  api: high\n":    {`line 2: priorities.api: not the right type: found "high"; accepted: a whole number`},
		"priorities: [x]\n":             {"line 1: priorities: not the right type: found a list; accepted: a mapping of names to whole numbers"},
		"dataplanes:\n- nme: default\n  endpoint: unix:///x\n": {"line 2: dataplanes[0].nme: " + no + "name? Accepted: name, labels, endpoint, tls"},
		"dataplanes: [{name: a}]\n":                            {"line 1: dataplanes[0].endpoint: missing; accepted: unix:///PATH, or tcp://HOST:PORT with tls"},
		"dataplanes: [{endpoint: a}]\n":                        {"line 1: dataplanes[0].name: missing", `line 1: dataplanes[0].endpoint: not where a data plane can listen: found "a"`},
		"dataplanes:\n- {name: a, endpoint: \"unix:///x\"}\n- {name: a, endpoint: \"unix:///y\"}\n": {`line 3: dataplanes[1].name: used already: found "a"`},
		"dataplanes:\n- {name: a, endpoint: \"tcp://h:1\", tls: {key: k}}\n":                        {"line 2: dataplanes[0].tls: missing, or not all of it"},
		"dataplanes:\n- {name: a, endpoint: \"unix:///x\", tls: {key: k}}\n":                        {"line 2: dataplanes[0].tls: no effect"},
		"northbounds:\n- type: nothin\n":                                                            {`line 2: northbounds[0].type: unknown word; did you mean nothing? Found "nothin"; accepted: nothing`},
		"northbounds: [{}]\n":                                                                       {"line 1: northbounds[0].type: missing; accepted: nothing"},
		"northbounds: [x]\n":                                                                        {`line 1: northbounds[0]: not a mapping: found "x"; accepted: a mapping with type, name`},
		"northbounds: [{type: nothing}]\n":                                                          {"line 1: northbounds[0].where: missing"},
		"northbounds:\n- type: nothing\n  where: x\n  ofen: 1\n":                                    {"line 4: northbounds[0].ofen: " + no + "often? Accepted: type, name, where, often, most"},
		"northbounds:\n- type: nothing\n  where: x\n  often: never\n":                               {`line 4: northbounds[0].often: not the right type: found "never"; accepted: a whole number`},
		"northbounds:\n- {type: nothing, where: x}\n- {type: nothing, where: y}\n":                  {"line 3: northbounds[1].name: the northbound in line 2 has this name already"},
		"northbounds: [{type: nothing, name: builtin, where: x}]\n":                                 {"line 1: northbounds[0].name: not a name"},
		"northbounds: [{type: nothing, where: x, often: -1}]\n":                                     {"line 1: northbounds[0]: disk: quota exceeded"},
		"northbounds: 7\n":    {"line 1: northbounds: not a list: found 7"},
		"- a\n":               {"line 1: not a configuration: found a list"},
		"store: /s\n\tx: y\n": {"line 2: not YAML: "},
		"lsten: x\nstor: y\n": {"line 1: lsten: ", "line 2: stor: "},
	} {
		err := start().Decode(strings.NewReader(text), types)
		got := strings.Split(fmt.Sprint(err), "\n")
		if len(got) != len(want) {
			t.Errorf("%q: %v, want %q", text, err, want)
			continue
		}
		for i := range want {
			if !strings.HasPrefix(got[i], want[i]) {
				t.Errorf("%q: %s, want %s", text, got[i], want[i])
			}
		}
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(path, []byte("\nlsten: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := start().Load(path, types); err == nil || !strings.HasPrefix(err.Error(), path+":2: lsten: ") {
		t.Errorf("%v", err)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add("log: {level: info}\nnorthbounds: [{type: nothing, where: x}]\n")
	f.Add("a: &a [*a]\nlog: *a\n")
	f.Fuzz(func(_ *testing.T, text string) { _ = start().Decode(strings.NewReader(text), types) })
}

func TestModulesHaveANameATokenAndRights(t *testing.T) {
	const hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
	const whole = "modules:\n  listen: unix:///run/sluice/modules.sock\n  rights:\n    dns: {token: \"" + hash + "\", kinds: [DnsHost], punts: [local], send: [session]}\n"
	decode := func(text string) error {
		c := Config{Listen: "unix:///a", Log: Log{Level: "info", Format: "text"}}
		return c.Decode(strings.NewReader(text), Types{})
	}
	if err := decode(whole); err != nil {
		t.Fatal(err)
	}
	for problem, change := range map[string][2]string{
		"line 2: modules.listen":            {"unix:///run/sluice/modules.sock", "run/modules.sock"},
		"modules.tls":                       {"unix:///run/sluice/modules.sock", "192.0.2.1:7000"},
		"modules.rights.dns.token":          {hash, "sluice_secret"},
		"modules.rights.dns.kinds":          {"DnsHost", "dnsHost"},
		"modules.rights.dns.punts":          {"[local]", "[a b]"},
		"modules.rights.dns.send":           {"[session]", "[tunnel]"},
		"rights: not a name: found \"DNS\"": {"dns:", "DNS:"},
		"a reserved name: found \"sluice\"": {"dns:", "sluice:"},
		"modules.rights.dns.tokn: there":    {"token:", "tokn:"},
		"module a has the same":             {"    dns:", "    a: {token: \"" + hash + "\"}\n    dns:"},
		"modules.listen: not an address":    {"listen: unix:///run/sluice/modules.sock", "tls: {}"},
	} {
		err := decode(strings.Replace(whole, change[0], change[1], 1))
		if err == nil || !strings.Contains(err.Error(), problem) || strings.Contains(err.Error(), "sluice_secret") {
			t.Errorf("%s: %v", problem, err)
		}
	}
}

func TestALeaseHasServersAKeyAndATime(t *testing.T) {
	const whole = "lease:\n  endpoints: [\"http://192.0.2.1:2379\"]\n  key: /sluice/lease/bonn\n  ttl: 10s\n"
	decode := func(text string) (Config, error) {
		c := Config{Listen: "unix:///a", Log: Log{Level: "info", Format: "text"}}
		return c, c.Decode(strings.NewReader(text), Types{})
	}
	if c, err := decode(whole); err != nil || c.Lease.TTL != 10*time.Second {
		t.Fatal(err, c.Lease)
	}
	for problem, change := range map[string][2]string{
		"line 2: lease.endpoints": {"http://192.0.2.1:2379", "192.0.2.1:2379"},
		"line 3: lease.key":       {"/sluice/lease/bonn", "bonn"},
		"line 4: lease.ttl":       {"10s", "1500ms"},
		"lease.tt: there":         {"ttl:", "tt:"},
	} {
		if _, err := decode(strings.Replace(whole, change[0], change[1], 1)); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%s: %v", problem, err)
		}
	}
}
