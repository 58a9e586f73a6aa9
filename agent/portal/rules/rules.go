// SPDX-License-Identifier: Apache-2.0

// Package rules has the rules of Portal that annotations cannot express.
package rules

import (
	"net/url"
	"strings"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/object"
)

// Rules are the rules of the concept's kinds.
var Rules = []object.KindRules{
	object.Rules[*api.Portal]{Check: checkPortal},
}

// portalWords are the placeholders of a Portal's URL.
var portalWords = []string{"url", "address", "mac", "username", "session"}

// Longest URL of a Portal: with it, the answer fits into the smallest segment that every client takes.
const longestPortal = 256

func checkPortal(p *api.Portal, add object.Report) {
	if len(p.Url) > longestPortal {
		add("url", "too long", object.Quote(p.Url[:32]+"..."), "at most 256 characters")
		return
	}
	plain := p.Url
	for _, word := range portalWords {
		plain = strings.ReplaceAll(plain, "{"+word+"}", "x")
	}
	u, err := url.Parse(plain)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.ContainsAny(plain, "{} \"<>\\^`|") || strings.ContainsFunc(plain, func(r rune) bool { return r < ' ' || r > '~' }) {
		add("url", "not a URL", object.Quote(p.Url), `such as "http://portal.example.net/?from={url}", with {`+strings.Join(portalWords, "}, {")+"} in its query")
		return
	}
	head, _, _ := strings.Cut(p.Url, "?")
	if strings.Contains(head, "{") {
		add("url", "a placeholder before the query", object.Quote(p.Url), `placeholders behind "?"`)
	}
}
