// SPDX-License-Identifier: Apache-2.0
// HTTP (RFC 9110, RFC 9112): the target of a request, and the answer 302 Found.

package portal

import (
	"bytes"
	"net/netip"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
)

const longestMethod = 16

// request is the target of a connection's first segment.
type request struct {
	head bool
	// "http://example.net/path"; the path is "/" where the segment does not say it.
	url string
	// The same without path.
	site string
}

// parseRequest reads the first part of a request: its header may continue in later segments. False: it is not HTTP.
func parseRequest(b []byte, host netip.AddrPort) (r request, ok bool) {
	line, rest, _ := bytes.Cut(b, []byte("\n"))
	method, target, _ := strings.Cut(strings.TrimSuffix(string(line), "\r"), " ")
	if method == "" || len(method) > longestMethod || len(method) == len(line) || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
		return r, false
	}
	r.head = method == "HEAD"
	target, _, whole := strings.Cut(target, " ")
	name := hostOf(rest)
	if name == "" {
		name = host.Addr().String()
		if host.Addr().Is6() {
			name = "[" + name + "]"
		}
	}
	r.site = "http://" + name + "/"
	r.url = r.site
	switch {
	case !whole || !printable(target):
	case strings.HasPrefix(target, "/"):
		r.url = "http://" + name + target
	case strings.HasPrefix(strings.ToLower(target), "http://"):
		r.url = target
	}
	return r, true
}

// hostOf returns the Host header, as far as the segment has it whole.
func hostOf(header []byte) string {
	for {
		line, rest, whole := bytes.Cut(header, []byte("\n"))
		if !whole || len(line) <= 1 {
			return ""
		}
		name, value, found := strings.Cut(string(line), ":")
		if value = textproto.TrimString(value); found && strings.EqualFold(name, "Host") && printable(value) && !strings.ContainsAny(value, "/@?#\\") {
			return value
		}
		header = rest
	}
}

func printable(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '"' || r == '<' || r == '>' })
}

// client is the values for placeholders of a Location.
type client struct{ address, mac, username, session string }

// location fills in the template of a portal's URL.
func location(template string, c *client, asked string) string {
	return strings.NewReplacer("{url}", url.QueryEscape(asked), "{address}", url.QueryEscape(c.address), "{mac}", url.QueryEscape(c.mac),
		"{username}", url.QueryEscape(c.username), "{session}", url.QueryEscape(c.session)).Replace(template)
}

// found is the answer to a request, with `most` bytes at most: with the whole URL if there is room, or with the site, or without either.
func found(r *request, template string, c *client, most int) []byte {
	for _, asked := range []string{r.url, r.site, ""} {
		if b := answer(r, location(template, c, asked)); len(b) <= most {
			return b
		}
	}
	// Too long by itself: without a query.
	short, _, _ := strings.Cut(template, "?")
	if b := answer(r, location(short, &client{}, "")); len(b) <= most {
		return b
	}
	return nil
}

func answer(r *request, where string) []byte {
	const body = "<html><head><title>302 Found</title></head><body>You are being sent to the portal.</body></html>\n"
	b := []byte("HTTP/1.1 302 Found\r\nLocation: " + where + "\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Type: text/html\r\nContent-Length: " +
		strconv.Itoa(len(body)) + "\r\n\r\n")
	if !r.head {
		b = append(b, body...)
	}
	return b
}
