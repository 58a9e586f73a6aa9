// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/config"
)

// fieldsOf are the names of all that may be written, also further down.
func fieldsOf(t reflect.Type) []string {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	var all []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		if name != "" {
			all = append(all, name)
		}
		all = append(all, fieldsOf(f.Type)...)
	}
	return all
}

func page(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", "how-to-"+name+".md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// To start the agent again does not help: the unit of systemd does not.
func TestAnAgentWithWrongOptionsEndsWithAStatusOfItsOwn(t *testing.T) {
	wrong := filepath.Join(t.TempDir(), "agent.yaml")
	if err := os.WriteFile(wrong, []byte("listen: [1]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{
		{"--log-level", "loud"}, {"--unknown"}, {"--listen", "tcp://192.0.2.1:1"}, {"--dataplane", "nothing"},
		{"--config", wrong}, {"--config", filepath.Join(t.TempDir(), "missing.yaml")},
	} {
		if status := Run(t.Context(), append([]string{"agent"}, arguments...), nil, io.Discard, io.Discard); status != exitMistaken {
			t.Errorf("%v: exit status %d", arguments, status)
		}
	}
	unit, err := os.ReadFile("../../deploy/sluice-agent.service")
	if err != nil || !strings.Contains(string(unit), "RestartPreventExitStatus="+strconv.Itoa(exitMistaken)) {
		t.Errorf("the unit starts it again: %v", err)
	}
}

func TestEveryFieldOfTheConfigurationIsInItsHowTo(t *testing.T) {
	configure := page(t, "configure")
	for _, name := range append(fieldsOf(reflect.TypeFor[config.Config]()), "northbounds") {
		if !regexp.MustCompile(`\b`+name+`:`).MatchString(configure) && !regexp.MustCompile(`\b`+name+`\b`).MatchString(configure) {
			t.Errorf("how-to-configure.md does not say what %s is", name)
		}
	}
	pages := map[string]string{"metrics": "observe", "redis-stream": "redis"}
	for kind, open := range northbounds {
		row := regexp.MustCompile("(?m)^\\| `" + kind + "` \\|.*$").FindString(configure)
		own := pages[kind]
		if own == "" {
			own = kind
		}
		text := page(t, own)
		if !strings.Contains(row, "(how-to-"+own+".md") {
			t.Errorf("how-to-configure.md does not lead to how-to-%s.md", own)
		}
		section := reflect.TypeOf(open()).Elem()
		for _, name := range fieldsOf(section) {
			if !regexp.MustCompile(`\b` + name + `:`).MatchString(text) {
				t.Errorf("how-to-%s.md does not say what %s of %s is", own, name, kind)
			}
		}
		for _, f := range reflect.VisibleFields(section) {
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name != "" && len(f.Index) <= 2 && !strings.Contains(row, "`"+name+"`") {
				t.Errorf("how-to-configure.md does not say that %s has %s", kind, name)
			}
		}
	}
}

func TestEveryConfigurationInTheDocumentationIsAcceptable(t *testing.T) {
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := regexp.MustCompile("(?ms)^```yaml\n(.*?)^```|^cat >/etc/sluice/agent.yaml <<'END'\n(.*?)^END$")
	seen := map[string]bool{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range shown.FindAllStringSubmatch(string(text), -1) {
			changeFlags := found[1] + found[2]
			if found[2] == "" && !strings.HasPrefix(changeFlags, "northbounds:") && !strings.HasPrefix(changeFlags, "dataplanes:") {
				continue
			}
			c := config.Config{Listen: DefaultAgent, Store: defaultStore, Log: config.Log{Level: "info", Format: "text"}}
			if err := c.Decode(strings.NewReader(changeFlags), northbounds); err != nil {
				t.Errorf("%s: %v", filepath.Base(path), err)
			}
			for _, n := range c.Northbounds {
				seen[n.Type] = true
			}
		}
	}
	for kind := range northbounds {
		if !seen[kind] {
			t.Errorf("no page shows a configuration with %s", kind)
		}
	}
}
