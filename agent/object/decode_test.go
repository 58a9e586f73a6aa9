// SPDX-License-Identifier: Apache-2.0

package object

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice.dev/sluice/agent/api"
)

func registry(t testing.TB) *Registry {
	t.Helper()
	r, err := NewRegistry()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func decode(t testing.TB, text string) ([]*Written, error) {
	t.Helper()
	r := registry(t)
	written, err := r.Decode(strings.NewReader(text), "a.yaml")
	if err == nil {
		err = r.Whole(written).Or()
	}
	return written, err
}

func TestObjectsAreReadAsPeopleWriteThem(t *testing.T) {
	written, err := decode(t, `# a comment alone
---
apiVersion: sluice.dev/v1
kind: Meter
metadata: {name: home-100, labels: {city: bonn, tier: 1}}
spec:
  algorithm: TRTCM
  committedRate: 1.5G
  committedBurst: 64KB
  peakRate: "2000000000"
  excessBurstTime: 10ms
  yellow: {verdict: remark, dscp: af12}
--- # the next
{"apiVersion": "sluice.dev/v1", "kind": "Session", "metadata": {"name": "s"},
 "spec": {"access": {"port": "p", "outerVlan": 100, "mac": "02:00:00:00:00:01"}, "gtpu": {
   "localAddress": "192.0.2.1", "localTeid": 1, "remoteAddress": "192.0.2.2", "remoteTeid": 0xffff, "qfi": null}}}
...
---
apiVersion: sluice.dev/v1
kind: Acl
metadata: {name: web}
spec:
  rules:
  - &rule {action: permit, protocol: 6, destinationPorts: 443}
  - *rule
---
`)
	// Hexadecimal is refused, and everything else is accepted.
	errs := AllErrors(err)
	if len(errs) != 1 || errs[0].Error() != "a.yaml:16: Session/s: gtpu.remoteTeid: not a number: found 0xffff; accepted: 1 to 4294967295" {
		t.Fatalf("errors:\n%v", err)
	}
	if len(written) != 2 {
		t.Fatalf("%d objects", len(written))
	}
	m := written[0]
	spec := m.Spec.(*api.Meter)
	if m.Line != 3 || m.Labels["tier"] != "1" || spec.CommittedRate != 1_500_000_000 || spec.CommittedBurst != 64_000 || spec.ExcessBurstTime != 10_000_000 ||
		spec.Yellow.Verdict != api.MeterVerdict_REMARK {
		t.Errorf("line %d: %v %v", m.Line, m.Labels, spec)
	}
	if line := m.LineOf(registry(t), "yellow.dscp"); line != 12 {
		t.Errorf("yellow.dscp is on line %d", line)
	}
	if rules := written[1].Spec.(*api.Acl).Rules; len(rules) != 2 || rules[1].DestinationPorts != "443" || rules[1].Protocol != "6" {
		t.Errorf("rules %v", rules)
	}
}

func TestAllErrorsAreReportedTogether(t *testing.T) {
	var kinds []string
	for _, k := range registry(t).Kinds() {
		kinds = append(kinds, k.Name)
	}
	_, err := decode(t, `apiVersion: sluice.dev/v1
kind: Session
metadata:
  name: alice
  owner: bob
spec:
  acess: {port: p}
  access:
    port: p
    outerVlan: 5000
    innerVlan: seven
    mac: 03:00:00:00:00:01
    outerVlan: 7
  addresses: 100.64.0.7/32
  policy:
    mss: 100
    mtu: 1400B
---
apiVersion: sluice.dev/v1
kind: sesion
metadata: {name: x}
---
kind: Route
metadata: {name: -r-}
spec:
  prefix: 192.0.2.1/24
  action: forwrd
---
a: [b
---
- not an object
`)
	want := []string{
		`a.yaml:5: Session/alice: metadata.owner: there is no such field; accepted: name, labels`,
		`a.yaml:7: Session/alice: acess: there is no such field; did you mean access? Accepted: access, addresses, vrf, policy, gtpu, ipsec`,
		`a.yaml:10: Session/alice: access.outerVlan: out of range: found 5000; accepted: 0 to 4094; 0: untagged`,
		`a.yaml:11: Session/alice: access.innerVlan: not a number: found "seven"; accepted: 0 to 4094; 0: a single tag`,
		`a.yaml:12: Session/alice: access.mac: a multicast Ethernet address: found "03:00:00:00:00:01"; accepted: a unicast Ethernet address: six pairs of hexadecimal digits with colons between, such as 02:00:00:00:00:01`,
		`a.yaml:13: Session/alice: access.outerVlan: duplicate field; accepted: each field once`,
		`a.yaml:14: Session/alice: addresses: not a list: found "100.64.0.7/32"; accepted: a list, each element an IPv4 or IPv6 network with its prefix length and no bit set after it, such as 100.64.0.7/32`,
		`a.yaml:16: Session/alice: policy.mss: out of range: found 100; accepted: 536 to 9216 bytes, or with a suffix KB, MB, GB (powers of 1000), KiB, MiB or GiB (powers of 1024); or 0: unchanged`,
		`a.yaml:20: kind: there is no such kind; did you mean Session? Found "sesion"; accepted: ` + strings.Join(kinds, ", "),
		`a.yaml:23: Route/-r-: apiVersion: missing; accepted: sluice.dev/v1`,
		`a.yaml:24: Route/-r-: metadata.name: not a name: found "-r-"; accepted: at most 253 letters, digits and . _ : @ -, beginning and ending with a letter or digit`,
		`a.yaml:26: Route/-r-: prefix: not a network: bits are set after its prefix; the network is 192.0.2.0/24: found "192.0.2.1/24"; accepted: an IPv4 or IPv6 network with its prefix length and no bit set after it, such as 2001:db8::/32`,
		`a.yaml:27: Route/-r-: action: there is no such value; did you mean forward? Found "forwrd"; accepted: forward, blackhole, prohibit`,
	}
	got := strings.Split(fmt.Sprint(err), "\n")
	for i, line := range want {
		if i >= len(got) || got[i] != line {
			t.Errorf("line %d:\n%s\nnot\n%s", i, append(got, make([]string, len(want))...)[i], line)
		}
	}
	if rest := got[min(len(want), len(got)):]; len(rest) != 2 || !strings.Contains(rest[0], "not YAML") || !strings.HasPrefix(rest[1], "a.yaml:31: not an object: found a list") {
		t.Errorf("the rest is %q", rest)
	}
}

func TestAJSONArrayHoldsObjects(t *testing.T) {
	written, err := decode(t, `[ ]
---
{"apiVersion": "sluice.dev/v1", "kind": "Vrf", "metadata": {"name": "alone"}}
---

[
  {
    "apiVersion": "sluice.dev/v1", "kind": "Vrf",
    "metadata": {"name": "red"},
    "spec": {
      "description": "ünïcode, \"[\u00fc]\""
    }
  }, {"apiVersion": "sluice.dev/v1", "kind": "Vrf", "metadata": {"name": "blue"},
    "spec": {"descriptio": "x"}},
  7, [{}],
  {"apiVersion": "sluice.dev/v1", "kind": "Port", "metadata": {"name": "p"},
    "spec": {
      "device": "net_null0", "mtu": 9000}}
]
---
[{kind: Vrf}]
`)
	var names []string
	for _, w := range written {
		names = append(names, w.Key().String())
	}
	if !slices.Equal(names, []string{"Vrf/alone", "Vrf/red", "Port/p"}) {
		t.Fatalf("objects: %v", names)
	}
	red, port := written[1], written[2]
	if got := red.Spec.(*api.Vrf).Description; got != `ünïcode, "[ü]"` {
		t.Errorf("description %q", got)
	}
	if at := red.LineOf(registry(t), "description"); red.Line != 7 || at != 11 {
		t.Errorf("lines %d and %d", red.Line, at)
	}
	if at := port.LineOf(registry(t), "mtu"); port.Line != 16 || at != 18 {
		t.Errorf("lines %d and %d", port.Line, at)
	}
	const accepted = "; accepted: a mapping with apiVersion, kind, metadata and spec; or a JSON array of such"
	want := []string{
		"a.yaml:14: Vrf/blue: descriptio: there is no such field; did you mean description? Accepted: description",
		"a.yaml:15: not an object: found 7" + accepted,
		"a.yaml:15: not an object: found a list" + accepted,
		"a.yaml:21: not an object: found a list" + accepted,
	}
	if got := strings.Split(fmt.Sprint(err), "\n"); !slices.Equal(got, want) {
		t.Errorf("mistakes:\n%s", strings.Join(got, "\n"))
	}
}

func TestInvalidYAMLIsExplained(t *testing.T) {
	object := "apiVersion: sluice.dev/v1\nkind: Session\nmetadata: {name: a}\nspec:\n"
	for _, c := range []struct{ sentence, text, want string }{
		{"a field in another column", object + "   access: {port: p}\n  vrf: a\n", "same column"},
		{"a tab in front", object + "\taccess: {port: p}\n", "a.yaml:5: not YAML: found character that cannot start any token; accepted: spaces, not tabs, in front of a line"},
		{"a brace that is not closed", object + "  access: {port: p\n", "a } for each {"},
		{"a program", "\x7fELF\x02\x01", "text in UTF-8"},
		{"another encoding", object + "  vrf: \xe4\n", "text in UTF-8"},
		{"capitals", "apiVersion: sluice.dev/v1\nKind: Vrf\nMetadata: {name: a}\n",
			"a.yaml:2: Kind: there is no such field; did you mean kind? Accepted: apiVersion, kind, metadata, spec\n" +
				"a.yaml:3: Metadata: there is no such field; did you mean metadata? Accepted: apiVersion, kind, metadata, spec"},
		{"a hexadecimal number", object + "  access: {port: p, outerVlan: 0x10}\n", "not a decimal number: found 0x10"},
	} {
		if _, err := decode(t, c.text); !strings.Contains(fmt.Sprint(err), c.want) || c.sentence == "capitals" && err.Error() != c.want {
			t.Errorf("%s: %v", c.sentence, err)
		}
	}
	for sentence, text := range map[string]string{
		"a byte order mark": "\ufeff" + object + "  access: {port: p}\n",
		"carriage returns":  strings.ReplaceAll(object+"  access: {port: p}\n---\n", "\n", "\r\n"),
	} {
		if all, err := decode(t, text); err != nil || len(all) != 1 {
			t.Errorf("%s: %v", sentence, err)
		}
	}
}

func TestHostileInputIsBounded(t *testing.T) {
	var bomb strings.Builder
	bomb.WriteString("apiVersion: sluice.dev/v1\nkind: Acl\nmetadata: {name: a}\nx0: &x0 [{action: permit}]\n")
	for i := 1; i < 40; i++ {
		fmt.Fprintf(&bomb, "x%d: &x%d [*x%d, *x%d]\n", i, i, i-1, i-1)
	}
	bomb.WriteString("spec: {rules: *x39}\n")
	object := "apiVersion: sluice.dev/v1\nkind: Acl\nmetadata: {name: a}\nspec: "
	for _, c := range []struct{ sentence, text, want string }{
		{"aliases of aliases", bomb.String(), "there is no such field"},
		{"aliases that repeat a long list", object + "{rules: [" + strings.Repeat("&a {action: permit}, ", 1) + strings.Repeat("*a,", 200_000) + "]}", ""},
		{"an alias to itself", object + "&s {rules: [*s]}", "there is no such field"},
		{"a list in a list in a list", object + "{rules: " + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + "}", "not a mapping"},
		{"deeper than any reader goes", object + strings.Repeat("{a: ", 100_000), "not YAML"},
		{"a key of a megabyte", object + "{? " + strings.Repeat("k", 1<<20) + "\n: 1}", "there is no such field"},
		{"many mistakes", object + "{rules: [" + strings.Repeat("{action: x},", 5000) + "]}", "there is no such value"},
		{"bytes that are not text", object + "\xff\xfe", "not YAML"},
		{"a document that does not end", strings.Repeat("#"+strings.Repeat("x", 1<<20)+"\n", 65), "more than 64 MiB"},
	} {
		t.Run(c.sentence, func(t *testing.T) {
			_, err := decode(t, c.text)
			if c.want == "" && err == nil {
				return
			}
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %.300v", err)
			}
			if errs := AllErrors(err); len(errs) > MaxMistakes+1 || len(err.Error()) > 1<<20 {
				t.Errorf("%d errors, %d bytes", len(errs), len(err.Error()))
			}
		})
	}
}

func TestWrittenObjectsAreReadAgain(t *testing.T) {
	for _, text := range examples {
		written, err := decode(t, text)
		if err != nil {
			t.Fatal(err)
		}
		roundTrip(t, registry(t), written)
	}
}

func roundTrip(t testing.TB, r *Registry, written []*Written) {
	for _, w := range written {
		var b bytes.Buffer
		if err := r.YAML(&b, w.Object); err != nil {
			t.Fatal(err)
		}
		j, err := r.JSON(w.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{b.String(), string(j)} {
			again, err := r.Decode(strings.NewReader(text), "")
			if err != nil || len(again) != 1 {
				t.Fatalf("%s became\n%s\nerror %v", w.Key(), text, err)
			}
			// Decoded objects record explicit words.
			again[0].Empty = w.Empty
			if !again[0].Equal(w.Object) {
				t.Fatalf("%s became\n%s", w.Key(), text)
			}
		}
	}
}

func TestYAMLIsForPeopleAndJSONForPrograms(t *testing.T) {
	r := registry(t)
	for _, o := range []struct{ text, yaml, json string }{
		{"Meter m {algorithm: srtcm, committedRate: 100000000, committedBurst: 64000}",
			"committedRate: 100M\n  committedBurst: 64KB\n", `"committedRate":100000000,"committedBurst":64000`},
		{"Meter m {algorithm: srtcm, committedRate: 100000001, committedBurstTime: 10ms}",
			"committedRate: 100000001\n  committedBurstTime: 10ms\n", `"committedRate":100000001,"committedBurstTime":10000000`},
		{"Port p {device: net_null0, mtu: 9000}", "mtu: 9000\n", `"mtu":9000`},
	} {
		written := objects(t, o.text)[0].Object
		var b bytes.Buffer
		if err := r.YAML(&b, written); err != nil || !strings.Contains(b.String(), o.yaml) {
			t.Errorf("%s, %v", &b, err)
		}
		if j, err := r.JSON(written); err != nil || !strings.Contains(string(j), o.json) {
			t.Errorf("%s, %v", j, err)
		}
	}
}

var examples = []string{`apiVersion: sluice.dev/v1
kind: Session
metadata: {name: "1", labels: {a: "yes", b: ""}}
spec:
  access: {port: "0123", outerVlan: 1, innerVlan: 2, mac: 02:00:00:00:00:01, proxyArp: true}
  addresses: [100.64.0.1/32, "2001:db8::/56"]
  policy: {mss: 1400, anySource: true}
  gtpu: {localAddress: 192.0.2.1, localTeid: 4294967295, remoteAddress: 192.0.2.2, remoteTeid: 1, pduSessionContainer: true, qfi: 9}
`, `apiVersion: sluice.dev/v1
kind: Vrf
metadata: {name: v}
spec: {description: "1e3: [not, a, list] # \"quoted\" ünïcode"}
---
apiVersion: sluice.dev/v1
kind: Route
metadata: {name: r}
spec: {prefix: 0.0.0.0/0, nextHops: [{address: 192.0.2.254, weight: 3}, {interface: wan}]}
`, `apiVersion: sluice.dev/v1
kind: Meter
metadata: {name: m}
spec: {committedRate: 4T, committedBurst: 1.5KiB, red: {}}
---
apiVersion: sluice.dev/v1
kind: Acl
metadata: {name: a}
spec:
  rules:
  - {source: 10.0.0.0/8, protocol: tcp, sourcePorts: 1-2, destinationPorts: 80, dscp: ef, tcpFlags: "syn,!ack"}
  - {protocol: icmp6, icmpType: 3/4, action: permit}
`}

func FuzzDecode(f *testing.F) {
	for _, text := range examples {
		f.Add(text)
	}
	f.Add(`[{"apiVersion": "sluice.dev/v1", "kind": "Vrf", "metadata": {"name": "v"}}, 7, [{}]]`)
	f.Add("a: &a [*a]\n---\n%YAML 1.1\n--- |\n x\n...\n")
	r := registry(f)
	f.Fuzz(func(t *testing.T, text string) {
		written, err := r.Decode(strings.NewReader(text), "f")
		if err != nil && AllErrors(err) == nil {
			t.Fatalf("an error of another sort: %v", err)
		}
		for _, w := range written {
			if errs := r.CheckLayer(w.Object); len(errs) > 0 {
				t.Fatalf("decoded, but not acceptable: %v", errs)
			}
			w.LineOf(r, "access.port")
			r.References(w.Object)
			r.Claims(w.Object)
		}
		roundTrip(t, r, written)
	})
}
