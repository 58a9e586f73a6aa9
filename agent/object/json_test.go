// SPDX-License-Identifier: Apache-2.0

package object

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

func TestJSONIsReadAsItWasWritten(t *testing.T) {
	r := registry(t)
	n, err := ParseJSON([]byte("\t{\"apiVersion\": \"sluice.dev/v1\", \"kind\": \"Vrf\",\r\n\t\"metadata\": {\"name\": \"a\\u002db\", \"labels\": {\"x\": \"1\"}}, " +
		"\"spec\": {\"description\": \"\\ud83d\\ude00 \\\"\\/\"}, \"status\": {\"any\": [null, 1.5e3]}}"))
	if err != nil {
		t.Fatal(err)
	}
	o, errs := r.Object(n)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	text, err := r.JSON(o)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"apiVersion":"sluice.dev/v1","kind":"Vrf","metadata":{"name":"a-b","labels":{"x":"1"}},"spec":{"description":"😀 \"/"}}`; string(text) != want {
		t.Errorf("%s; want %s", text, want)
	}
}

func TestTextThatIsNotOneJSONValueIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "two values": "{} {}", "half": `{"a":`, "no name": `{1: 2}`, "a comma too many": `[1,]`, "YAML": "a: b",
		"too deep": strings.Repeat("[", 1000) + strings.Repeat("]", 1000),
	} {
		if n, err := ParseJSON([]byte(text)); err == nil || !strings.HasPrefix(err.Error(), "not JSON: ") {
			t.Errorf("%s: %v, %v", name, n, err)
		}
	}
}

func TestElementsOfListsAreHandedOverAsTheyAreRead(t *testing.T) {
	for text, want := range map[string]string{
		`{"put": [1, {"a": [2]}], "delete": [], "put": ["b"]}`: "put[-1] put[0]=1 put[1]=map delete[-1] put[-1] put[0]=b",
		`{"put": {"a": 1}, "": 3}`:                             "put[-1]=map [-1]=3",
		`{}`:                                                   "",
		`[1, 2]`:                                               "[-1]=list",
		`7`:                                                    "[-1]=7",
		`{"put": [1, 2`:                                        "put[-1] put[0]=1 put[1]=2 not JSON",
		`{"put": [1, }`:                                        "put[-1] put[0]=1 not JSON",
		`{"put": [1]} 3`:                                       "put[-1] put[0]=1 not JSON",
		`{"put": [1]`:                                          "put[-1] put[0]=1 not JSON",
		`{"put"`:                                               "not JSON",
		``:                                                     "not JSON",
		`{"put": [` + strings.Repeat("[", 1000):                "put[-1] not JSON",
		`{"put": [1, "stop", 2]}`:                              "put[-1] put[0]=1 stopped",
	} {
		var got []string
		err := MembersOfJSON([]byte(text), func(member string, at int, n *yaml.Node) error {
			value := ""
			switch {
			case n == nil:
			case IsMapping(n):
				value = "=map"
			case n.Kind == yaml.SequenceNode:
				value = "=list"
			case n.Value == "stop":
				return errors.New("stopped")
			default:
				value = "=" + n.Value
			}
			got = append(got, fmt.Sprintf("%s[%d]%s", member, at, value))
			return nil
		})
		if err != nil {
			what, _, _ := strings.Cut(err.Error(), ":")
			got = append(got, what)
		}
		if found := strings.Join(got, " "); found != want {
			t.Errorf("%s: %s; want %s", text, found, want)
		}
	}
}

func TestTheNumberOfValuesIsBounded(t *testing.T) {
	for text, well := range map[string]bool{`[1, 2, {"a": 3}]`: true, `[1, 2, {"a": 3, "b": 4}]`: false, `[[[[[[`: false} {
		p := newJSONParser([]byte(text))
		p.left = 6
		if _, err := p.value(0); (err == nil) != well {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestAMistakeInJSONNamesTheFieldAndNoLine(t *testing.T) {
	r := registry(t)
	n, err := ParseJSON([]byte(`{"apiVersion":"sluice.dev/v1","kind":"Session","metadata":{"name":"a"},"spec":{"access":{"port":"p","outerVlan":5000,"outerVlan":1}}}`))
	if err != nil {
		t.Fatal(err)
	}
	_, errs := r.Object(n)
	if len(errs) != 2 || errs[0].Line != 0 || !strings.Contains(errs.Error(), "Session/a: access.outerVlan: duplicate field") ||
		!strings.Contains(errs.Error(), "Session/a: access.outerVlan: out of range: found 5000") {
		t.Errorf("%v", errs)
	}
}

// RFC 7396, appendix A.
func TestMergePatchesFollowTheirSpecification(t *testing.T) {
	for _, test := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`}, {`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`}, {`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`}, {`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`}, {`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`}, {`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`}, {`{"a":"b"}`, `["c"]`, `["c"]`}, {`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`}, {`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
	} {
		target, err := ParseJSON([]byte(test[0]))
		if err != nil {
			t.Fatal(err)
		}
		patch, err := ParseJSON([]byte(test[1]))
		if err != nil {
			t.Fatal(err)
		}
		if got := string(JSON(MergePatch(target, patch))); got != test[2] {
			t.Errorf("%s with %s: %s; want %s", test[0], test[1], got, test[2])
		}
	}
}

func FuzzJSON(f *testing.F) {
	r := registry(f)
	f.Add([]byte(`{"apiVersion":"sluice.dev/v1","kind":"Session","metadata":{"name":"a"},"spec":{"access":{"port":"p","outerVlan":5000}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		n, err := ParseJSON(text)
		if err != nil {
			return
		}
		if o, errs := r.Object(n); len(errs) == 0 {
			again, err := r.JSON(o)
			if err != nil {
				t.Fatal(err)
			}
			if n, err = ParseJSON(again); err != nil {
				t.Fatal(err)
			}
			if second, errs := r.Object(n); len(errs) > 0 || !o.Equal(second) {
				t.Fatalf("%s: %v", again, errs)
			}
		}
	})
}
