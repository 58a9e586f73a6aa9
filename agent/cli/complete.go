// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/agent/api"
)

// The time limit of the agent's answer.
const completionTimeout = 2 * time.Second

func (p *program) completionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Write a script that makes the shell complete commands, kinds and names",
		Example: `  source <(sluice completion bash)
  sluice completion bash > /etc/bash_completion.d/sluice
  sluice completion zsh > "${fpath[1]}/_sluice"
  sluice completion fish > ~/.config/fish/completions/sluice.fish`,
		Args:                  cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs:             []string{"bash", "zsh", "fish"},
		DisableFlagsInUseLine: true,
		RunE: func(c *cobra.Command, arguments []string) error {
			switch arguments[0] {
			case "bash":
				return c.Root().GenBashCompletionV2(p.out, true)
			case "zsh":
				return c.Root().GenZshCompletion(p.out)
			}
			return c.Root().GenFishCompletion(p.out, true)
		},
	}
}

// complete offers words for a flag.
func complete(c *cobra.Command, flag string, words func(c *cobra.Command, typed string) []string) {
	err := c.RegisterFlagCompletionFunc(flag, func(c *cobra.Command, _ []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return starting(words(c, typed), typed), cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(fmt.Sprintf("completion of --%s: %v", flag, err)) // only if the command has no such flag
	}
}

func starting(words []string, typed string) []string {
	return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return !strings.HasPrefix(w, typed) })
}

// completeNames offers a kind, and then at most so many (-1: any number) of its objects' names.
func (p *program) completeNames(most int) cobra.CompletionFunc {
	return func(c *cobra.Command, before []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if len(before) > 0 {
			if most >= 0 && len(before) > most {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			kind, err := p.registry.Lookup(before[0])
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			given := setOf(before[1:])
			names := slices.DeleteFunc(p.namesOf(kind.Name)(c, typed), func(n string) bool { return given[n] })
			return starting(names, typed), cobra.ShellCompDirectiveNoFileComp
		}
		if word, _, slash := strings.Cut(typed, "/"); slash {
			kind, err := p.registry.Lookup(word)
			if err != nil {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var names []string
			for _, name := range p.namesOf(kind.Name)(c, typed[len(word)+1:]) {
				names = append(names, word+"/"+name)
			}
			return starting(names, typed), cobra.ShellCompDirectiveNoFileComp
		}
		var kinds []string
		done, typing := "", typed
		if i := strings.LastIndexByte(typed, ','); i >= 0 {
			done, typing = typed[:i+1], typed[i+1:]
		}
		for _, k := range p.registry.Kinds() {
			for _, word := range []string{k.Plural, strings.ToLower(k.Name), k.Name} {
				if strings.HasPrefix(word, typing) {
					kinds = append(kinds, done+word)
					break
				}
			}
		}
		return kinds, cobra.ShellCompDirectiveNoFileComp
	}
}

// maxCompletions is how many names are offered.
const maxCompletions = 10_000

// namesOf asks the agent for objects of a kind whose names begin with a prefix.
func (p *program) namesOf(kind string) func(*cobra.Command, string) []string {
	return func(c *cobra.Command, typed string) []string {
		client, err := p.client()
		if err != nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		var names []string
		query := &api.ObjectsQuery{Kinds: []string{kind}, Limit: pageSize, Page: pageBefore(kind, typed)}
		for len(names) < maxCompletions {
			page, err := client.Get(ctx, query)
			if err != nil {
				break
			}
			for _, o := range page.GetObjects() {
				if name := o.GetIntent().GetName(); strings.HasPrefix(name, typed) {
					names = append(names, name)
				} else if name > typed {
					return names
				}
			}
			if query.Page = page.GetNextPage(); query.Page == "" {
				break
			}
		}
		return names
	}
}

// pageBefore is the page that the names with this beginning follow; pages are named after the object before them. No name has a "~".
func pageBefore(kind, beginning string) string {
	last := len(beginning) - 1
	if last < 0 || beginning[last] <= ' ' || beginning[last] > '~' {
		return ""
	}
	return kind + "/" + beginning[:last] + string(beginning[last]-1) + "~"
}

// nodeNames asks the data plane which nodes its graph has.
func (p *program) nodeNames(c *cobra.Command, _ string) []string {
	client, err := p.client()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
	defer cancel()
	list, err := read[*api.NodeCountersList](ctx, client, &api.NodeCountersQuery{})
	if err != nil {
		return nil
	}
	var names []string
	for _, n := range list.GetNodes() {
		names = append(names, n.GetNode())
	}
	slices.Sort(names)
	return names
}
