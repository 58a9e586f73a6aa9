// SPDX-License-Identifier: Apache-2.0

// Package cli is the command line: `sluice agent` is the agent, and everything else talks to one (api/agent.proto).
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"sluice.dev/sluice/agent/api"
	"sluice.dev/sluice/agent/concepts"
	"sluice.dev/sluice/agent/module"
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/server"
	"sluice.dev/sluice/agent/service"
)

// DefaultAgent is the default address of the agent.
const DefaultAgent = "unix:///run/sluice/agent.sock"

// release is set when the program is linked.
var release string

// Release is the program's own version.
func Release() string {
	if release != "" {
		return release
	}
	if build, ok := debug.ReadBuildInfo(); ok && build.Main.Version != "" {
		return build.Main.Version
	}
	return "(devel)"
}

// program holds the state that the commands share.
type program struct {
	in io.Reader
	// Writers of text. Binary output and control sequences bypass them, to the writers below them.
	out, err *printable
	// Address of the agent, and which of its data planes is meant.
	agent, at   string
	remoteAgent remoteAgent
	registry    *object.Registry
	// That run in the agent.
	services []service.Definition
	// Tests replace the clock.
	now func() time.Time

	connection *grpc.ClientConn
	// A table was written, and the next one keeps a distance.
	shown bool
	// Packets that were written.
	traced int
}

// Main runs the program, whose agent has these services, and returns its exit code.
func Main(services ...service.Definition) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	p := &program{in: os.Stdin, out: &printable{to: os.Stdout}, err: &printable{to: os.Stderr}, now: time.Now, services: services}
	return p.run(ctx, os.Args[1:])
}

const (
	// exitMistaken is the exit status of an agent whose options or configuration are wrong: to start it again does not help.
	exitMistaken = 2
	// exitUnfinished is the exit status of a change that is accepted and stored, and not applied yet. Any other
	// failure is 1.
	exitUnfinished = 3
	// exitUnanswered: it is not known whether the change was accepted.
	exitUnanswered = 4
)

// mistaken is the error of an agent's options or configuration.
type mistaken struct{ error }

func (m mistaken) Unwrap() error { return m.error }

// unanswered is the error of a request for a change that was sent, and got no answer.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }

// Run is Main without services and with its surroundings given.
func Run(ctx context.Context, arguments []string, in io.Reader, out, errs io.Writer) int {
	return (&program{in: in, out: &printable{to: out}, err: &printable{to: errs}, now: time.Now}).run(ctx, arguments)
}

func (p *program) run(ctx context.Context, arguments []string) int {
	root, err := p.root()
	if err == nil {
		root.SetArgs(arguments)
		err = root.ExecuteContext(ctx)
	}
	if p.connection != nil {
		p.connection.Close()
	}
	p.out.flush()
	defer p.err.flush()
	if err != nil {
		fmt.Fprintf(p.err, "sluice: %s\n", strings.ReplaceAll(p.explain(err), "\n", "\n        "))
		if errors.As(err, &mistaken{}) {
			return exitMistaken
		}
		var later *unfinished
		if errors.As(err, &later) {
			return exitUnfinished
		}
		if errors.As(err, &unanswered{}) {
			return exitUnanswered
		}
		return 1
	}
	return 0
}

func (p *program) root() (*cobra.Command, error) {
	if p.registry == nil {
		registry, err := concepts.NewRegistry()
		if err != nil {
			return nil, fmt.Errorf("reading the contract: %w", err)
		}
		p.registry = registry
		registry.AskFor(p.moduleKinds)
	}
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A software gateway for the network edge",
		Long: `Sluice is a software gateway for the network edge: packets enter on an access side, are matched to
a session, are policed and filtered, change their encapsulation, and leave on a core side.

Objects in YAML are the desired state; the agent makes the data plane match.`,
		Example: `  sluice plan -f examples/bng        # what would change
  sluice apply -f examples/bng       # change it
  sluice get sessions
  sluice top                         # rates, drops and cycles, live
  sluice trace 'vlan 100 and host 192.0.2.9'`,
		Version:           Release(),
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate("sluice {{.Version}}\n")
	root.SetIn(p.in)
	root.SetOut(p.out)
	root.SetErr(p.err)
	agent := DefaultAgent
	if set := os.Getenv(agentVariable); set != "" {
		agent = set
	}
	root.PersistentFlags().StringVar(&p.agent, "agent", agent, "where the agent listens: unix:///PATH or tcp://HOST:PORT; also in SLUICE_AGENT")
	p.remoteAgent.flags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&p.at, "at", os.Getenv("SLUICE_AT"), "the data plane to look at, if the agent has several; also in SLUICE_AT")
	root.SetFlagErrorFunc(flagError)
	root.AddGroup(&cobra.Group{ID: "change", Title: "Change the configuration:"},
		&cobra.Group{ID: "look", Title: "Show the state:"}, &cobra.Group{ID: "run", Title: "Run:"})
	for group, commands := range map[string][]*cobra.Command{
		"change": {p.planCommand(), p.applyCommand(), p.editCommand(), p.deleteCommand(), p.confirmCommand(), p.rollbackCommand()},
		"look": {p.getCommand(), p.describeCommand(), p.explainCommand(), p.graphCommand(), p.historyCommand(), p.diffCommand(), p.topCommand(), p.traceCommand(), p.captureCommand(),
			p.dropsCommand()},
		"run": {p.agentCommand(), p.tokenCommand(), p.versionCommand(), p.completionCommand()},
	} {
		for _, c := range commands {
			c.GroupID = group
			if c.Args != nil {
				c.Args = explained(c.Args)
			}
			root.AddCommand(c)
		}
	}
	p.conceptCommands(root)
	p.stateCommands(root)
	return root, nil
}

// explained replaces the errors about the number of arguments by the command's usage.
func explained(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, arguments []string) error {
		if check(c, arguments) == nil {
			return nil
		}
		found := "nothing"
		if len(arguments) > 0 {
			found = strconv.Quote(strings.Join(arguments, " "))
		}
		return fmt.Errorf("found %s behind `%s`; accepted: %s; see `%s --help`", found, c.CommandPath(), strings.TrimSuffix(c.UseLine(), " [flags]"), c.CommandPath())
	}
}

// agentVariable is the variable of the agent's address.
const agentVariable = "SLUICE_AGENT"

// source is the source of the agent's address: the flag or the variable.
func (p *program) addressSource() string {
	if p.agent == os.Getenv(agentVariable) {
		return agentVariable
	}
	return "--agent"
}

// client returns the agent's client. It connects with the first request.
func (p *program) client() (api.AgentClient, error) {
	if p.connection == nil {
		target, options, err := p.remoteAgent.dial(p.addressSource(), p.agent)
		if err != nil {
			return nil, err
		}
		c, err := grpc.NewClient(target, append(options,
			grpc.WithUnaryInterceptor(p.unary), grpc.WithStreamInterceptor(p.stream), grpc.WithStatsHandler(outcomes{}),
			// An agent that was started again is found again within a second or so.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: connectTimeout,
			}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(server.MessageLimit), grpc.MaxCallSendMsgSize(server.MessageLimit)))...)
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", p.agent, err)
		}
		p.connection = c
	}
	return api.NewAgentClient(p.connection), nil
}

// moduleKinds makes the kinds known that modules added to the agent. Where the agent cannot be asked, its kinds stay unknown.
func (p *program) moduleKinds() {
	if _, err := p.client(); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
	defer cancel()
	if err := module.FetchKinds(ctx, p.connection, p.registry); err != nil && status.Code(err) == codes.Unknown {
		fmt.Fprintf(p.err, "sluice: kinds of modules: %s\n", p.explain(err))
	}
}

// everyKind returns all kinds, also those that modules added to the agent.
func (p *program) everyKind() []*object.Kind {
	p.registry.Ask()
	return p.registry.Kinds()
}

// everyPage gets a list page by page: get returns the name of the next page, "" if there is none.
func everyPage(get func(page string) (next string, err error)) error {
	for page := ""; ; {
		next, err := get(page)
		if err != nil || next == "" || next == page {
			return err
		}
		page = next
	}
}

// chosen adds to a request which data plane is meant.
func (p *program) chosen(ctx context.Context) context.Context {
	if p.at == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, server.DataplaneHeader, p.at)
}

func (p *program) unary(ctx context.Context, method string, request, reply any, c *grpc.ClientConn, call grpc.UnaryInvoker, options ...grpc.CallOption) error {
	o := &outcome{}
	err := o.of(call(context.WithValue(p.chosen(ctx), outcomeKey{}, o), method, request, reply, c, options...))
	switch method {
	case api.Agent_Apply_FullMethodName, api.Agent_Rollback_FullMethodName, api.Agent_Confirm_FullMethodName:
		if errors.As(err, &unreached{}) && o.sent.Load() {
			return unanswered{err}
		}
	}
	return err
}

func (p *program) stream(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	o := &outcome{}
	s, err := open(context.WithValue(p.chosen(ctx), outcomeKey{}, o), desc, c, method, options...)
	if err != nil {
		return nil, o.of(err)
	}
	return watchedStream{s, o}, nil
}

// explain returns an error's text for a person.
func (p *program) explain(err error) string {
	if errors.Is(err, context.Canceled) {
		return "interrupted"
	}
	var coded interface{ GRPCStatus() *status.Status }
	if !errors.As(err, &coded) {
		return err.Error()
	}
	s := coded.GRPCStatus()
	switch {
	case errors.As(err, &unanswered{}):
		return "the agent went away before it answered: the agent may have accepted the change. Repeat the command: a change that was accepted stays as it is."
	case errors.As(err, &unreached{}):
		return p.unreachable(s)
	case s.Code() == codes.Canceled:
		return "interrupted"
	case server.Reason(s) == server.WhichDataplane:
		return s.Message() + ": choose one with --at"
	}
	return s.Message()
}

// unreachable returns the reason why no agent answered.
func (p *program) unreachable(s *status.Status) string {
	source := ""
	if p.addressSource() == agentVariable {
		source = ", from SLUICE_AGENT"
	}
	dial, handshake := p.remoteAgent.attempts.last()
	switch {
	case handshake != nil:
		return fmt.Sprintf("%s%s: TLS handshake failed: %v.\nSee --ca, --cert and --key.", p.agent, source, handshake)
	case errors.Is(dial, fs.ErrPermission):
		return fmt.Sprintf("%s%s: permission denied. A client needs write permission for the agent's socket, as root has.", p.agent, source)
	}
	why, number := s.Message(), syscall.Errno(0)
	if errors.As(dial, &number) {
		why = number.Error()
	} else if dial != nil {
		why = dial.Error()
	}
	return fmt.Sprintf("no agent answers at %s%s (%s).\nStart one with `sluice agent`, or set its address with --agent.", p.agent, source, why)
}

func problemsOf(problems []*api.Problem) object.Errors {
	var all object.Errors
	for _, one := range problems {
		all = append(all, &object.Error{Object: object.Key{Kind: one.GetKind(), Name: one.GetName()}, Field: one.GetField(),
			Problem: one.GetProblem(), Found: one.GetFound(), Accepted: one.GetAccepted()})
	}
	return all
}

// problems returns the mistakes that the agent reports, with the file and line of each.
func (p *program) problems(err error, written []*object.Written) error {
	for _, detail := range status.Convert(err).Details() {
		problems, ok := detail.(*api.Problems)
		if !ok {
			continue
		}
		all := problemsOf(problems.GetProblems())
		p.registry.Locate(written, all)
		if len(all) > 0 {
			return all
		}
	}
	return err
}

// screen returns the height and width of the terminal that is written to; zeros if it is none.
func (p *program) screen() (lines, columns int) {
	f, ok := p.out.to.(*os.File)
	if !ok {
		return 0, 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	if size.Row == 0 || size.Col == 0 {
		return 24, 80
	}
	return int(size.Row), int(size.Col)
}
