// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/client-go/util/jsonpath"
)

// jsonPath reads a template as kubectl does: "{.spec.vrf}", "{range .items[*]}{.metadata.name}{\"\\n\"}{end}", or just ".spec.vrf".
func jsonPath(template string) (*jsonpath.JSONPath, error) {
	if !strings.Contains(template, "{") {
		if !strings.HasPrefix(template, ".") && !strings.HasPrefix(template, "[") {
			template = "." + template
		}
		template = "{" + template + "}"
	}
	path := jsonpath.New("template").AllowMissingKeys(true)
	if err := path.Parse(template); err != nil {
		return nil, fmt.Errorf("JSONPath template: %w; accepted: a template such as {.metadata.name}", err)
	}
	return path, nil
}

// writeJSONPath writes the result of a template on JSON, and ends the line.
func (p *program) writeJSONPath(template string, text []byte) error {
	path, err := jsonPath(template)
	if err != nil {
		return err
	}
	var value any
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return fmt.Errorf("reading JSON: %w", err)
	}
	var b bytes.Buffer
	if err := path.Execute(&b, withNumbers(value)); err != nil {
		return fmt.Errorf("JSONPath template: %w", err)
	}
	if b.Len() > 0 && !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
		b.WriteByte('\n')
	}
	_, err = p.out.Write(b.Bytes())
	return err
}

// withNumbers makes numbers of JSON numbers, so that filters can compare them.
func withNumbers(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if n, err := v.Float64(); err == nil {
			return n
		}
		return v.String()
	case []any:
		for i := range v {
			v[i] = withNumbers(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = withNumbers(v[name])
		}
	}
	return value
}
