// SPDX-License-Identifier: Apache-2.0

// The OpenAPI 3.1 document, made from the table of operations and the registry.
package rest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"sluice.dev/sluice/agent/access"
	"sluice.dev/sluice/agent/example"
	"sluice.dev/sluice/agent/reference"
)

func sorted(all []string) []string {
	slices.Sort(all)
	return all
}

// Problems that an operation may answer with.
func (op *operation) problems() []int {
	all := []int{http.StatusBadRequest}
	if op.role != access.NoRole {
		all = append(all, http.StatusUnauthorized, http.StatusForbidden)
	}
	if strings.Contains(op.path, "{") || op.id == "diff" {
		all = append(all, http.StatusNotFound)
	}
	if op.action != "" || op.id == "plan" {
		all = append(all, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusInsufficientStorage)
	}
	if op.media != "" {
		all = append(all, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusTooManyRequests)
	}
	if strings.HasPrefix(op.id, "list") {
		all = append(all, http.StatusUnprocessableEntity)
	}
	if op.asksDataplane {
		all = append(all, http.StatusNotFound, http.StatusUnprocessableEntity, http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout)
	}
	if op.id == "events" {
		all = append(all, http.StatusGone)
	}
	return append(all, http.StatusInternalServerError)
}

func (p *parameter) schema() schema {
	switch {
	case p.enum != nil:
		return words(p.enum...)
	case p.boolean:
		return flagSchema
	case p.number:
		return schema{"type": "integer", "minimum": p.least, "maximum": p.most}
	}
	if p.in == "header" && p.pattern == nil {
		return textSchema
	}
	if p.pattern == nil {
		return schema{"type": "string", "maxLength": p.longest, "pattern": `^[^\x00-\x1f\x7f]*$`}
	}
	return schema{"type": "string", "pattern": p.pattern.String(), "minLength": 1, "maxLength": p.longest}
}

// examples returns the first example of each kind, as JSON.
func (s *server) examples() (map[string]schema, error) {
	written, err := example.Objects(s.environment.Registry)
	if err != nil {
		return nil, fmt.Errorf("examples: %w", err)
	}
	all := map[string]schema{}
	for _, w := range written {
		if all[w.Kind] != nil {
			continue
		}
		text, err := s.environment.Registry.JSON(w.Object)
		if err != nil {
			return nil, fmt.Errorf("examples: %w", err)
		}
		one := schema{}
		if err := json.Unmarshal(text, &one); err != nil {
			return nil, fmt.Errorf("examples: %s: %w", w.Key(), err)
		}
		all[w.Kind] = one
	}
	return all, nil
}

func (s *server) openAPI(operations []*operation, comments *reference.Reference) ([]byte, error) {
	all := schemas{schema{}}
	all.kinds(s.environment.Registry)
	all.envelopes(s.environment.Registry)
	if err := all.states(s.environment.Registry.States(), comments); err != nil {
		return nil, err
	}
	paths, tags, seen := schema{}, []schema{}, map[string]bool{}
	for _, op := range operations {
		if !seen[op.tag] {
			seen[op.tag] = true
			tags = append(tags, schema{"name": op.tag})
		}
		path, _ := paths[op.path].(schema)
		if path == nil {
			path = schema{}
			paths[op.path] = path
		}
		path[strings.ToLower(op.method)] = op.document()
	}
	security := []schema{{"bearer": []string{}}}
	schemes := schema{"bearer": schema{"type": "http", "scheme": "bearer", "description": "A token, made by `sluice token`."}}
	if s.guard.Certificates() {
		security = append(security, schema{"certificate": []string{}})
		schemes["certificate"] = schema{"type": "mutualTLS"}
	}
	return pretty(schema{
		"openapi": "3.1.0",
		"info": schema{"title": "Sluice", "version": "1", "description": "The desired state and the observed state of the gateway. Objects are those of docs/reference.md; " +
			"numbers with a unit may be text with a suffix, such as 100M. Roles: read, operate, admin; each may do what those before it may."},
		"servers": []schema{{"url": "/"}}, "tags": tags, "paths": paths, "security": security,
		"components": schema{"schemas": all.all, "securitySchemes": schemes},
	})
}

func (op *operation) document() schema {
	d := schema{"operationId": op.id, "tags": []string{op.tag}, "summary": op.summary}
	text := op.text
	if op.role != access.NoRole {
		text = strings.TrimSpace(text + " Needs the role " + op.role.String() + ".")
	} else {
		d["security"] = []schema{}
	}
	if text != "" {
		d["description"] = text
	}
	var parameters []schema
	for i := range op.parameters {
		p := &op.parameters[i]
		one := schema{"in": p.in, "name": p.name, "description": p.text, "schema": p.schema()}
		if p.required {
			one["required"] = true
		}
		parameters = append(parameters, one)
	}
	if parameters != nil {
		d["parameters"] = parameters
	}
	if op.media != "" {
		d["requestBody"] = schema{"required": true, "content": schema{op.media: schema{"schema": op.body, "x-example": op.example}}}
	}
	replies := schema{}
	for _, r := range op.replies {
		one := schema{"description": r.text}
		if r.media != "" {
			one["content"] = schema{r.media: schema{"schema": r.content}}
		}
		if r.etag {
			one["headers"] = schema{"ETag": schema{"description": "Changes with the configuration of the object, not with its status.", "schema": textSchema}}
		}
		replies[strconv.Itoa(r.status)] = one
	}
	for _, status := range op.problems() {
		replies[strconv.Itoa(status)] = schema{"description": http.StatusText(status), "content": schema{"application/problem+json": schema{"schema": ref("Problem")}}}
	}
	d["responses"] = replies
	return d
}
