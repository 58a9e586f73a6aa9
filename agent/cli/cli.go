// Package cli is the command line: `sluice agent` is the agent, and everything else talks to one (api/agent.proto).
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
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
	"sluice.dev/sluice/agent/object"
	"sluice.dev/sluice/agent/server"
)

// DefaultAgent is where the agent listens if nothing else is said.
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

// program is what the commands share.
type program struct {
	in       io.Reader
	out, err io.Writer
	// Address of the agent, and which of its data planes is meant.
	agent, at string
	far       far
	registry  *object.Registry
	// What tests fix.
	now func() time.Time

	connection *grpc.ClientConn
	// A table was written, and the next one keeps a distance.
	shown bool
	// Packets that were written.
	traced int
}

// Main runs the program and returns its exit code.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	return Run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
}

const (
	// exitUnfinished is the exit status where what was asked for is accepted and kept, and not done yet. Any other failure is 1.
	exitUnfinished = 3
	// exitUnanswered is where nobody knows whether it was accepted.
	exitUnanswered = 4
)

// unanswered is the error of a request for a change that was sent, and that nobody answered.
type unanswered struct{ error }

func (u unanswered) Unwrap() error { return u.error }

// Run is Main with its surroundings given.
func Run(ctx context.Context, arguments []string, in io.Reader, out, told io.Writer) int {
	return (&program{in: in, out: out, err: told, now: time.Now}).run(ctx, arguments)
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
	if err != nil {
		fmt.Fprintf(p.err, "sluice: %s\n", strings.ReplaceAll(p.explain(err), "\n", "\n        "))
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
		registry, err := object.NewRegistry()
		if err != nil {
			return nil, fmt.Errorf("reading the contract: %w", err)
		}
		p.registry = registry
	}
	root := &cobra.Command{
		Use:   "sluice",
		Short: "A software gateway for the network edge",
		Long: `Sluice is a software gateway for the network edge: packets enter from an access side, are recognised as
somebody's, are policed and filtered, change their encapsulation, and leave on a core side.

Objects in YAML say what is wanted; the agent makes the data plane match.`,
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
	p.far.flags(root.PersistentFlags())
	root.PersistentFlags().StringVar(&p.at, "at", os.Getenv("SLUICE_AT"), "which data plane is looked at, if the agent has several; also in SLUICE_AT")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return fmt.Errorf("%w; see `%s --help`", err, c.CommandPath())
	})
	root.AddGroup(&cobra.Group{ID: "change", Title: "Say what is wanted:"},
		&cobra.Group{ID: "look", Title: "See how it stands:"}, &cobra.Group{ID: "run", Title: "Run:"})
	for group, commands := range map[string][]*cobra.Command{
		"change": {p.planCommand(), p.applyCommand(), p.deleteCommand(), p.confirmCommand(), p.rollbackCommand()},
		"look": {p.getCommand(), p.describeCommand(), p.graphCommand(), p.historyCommand(), p.diffCommand(), p.topCommand(), p.traceCommand(), p.captureCommand(),
			p.dropsCommand(), p.neighborsCommand(), p.pathsCommand()},
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
	return root, nil
}

// explained says what a command takes, in place of how many arguments.
func explained(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, arguments []string) error {
		if check(c, arguments) == nil {
			return nil
		}
		found := "nothing"
		if len(arguments) > 0 {
			found = strconv.Quote(strings.Join(arguments, " "))
		}
		return fmt.Errorf("found %s behind `%s`; accepted: sluice %s; see `%s --help`", found, c.CommandPath(), c.Use, c.CommandPath())
	}
}

// agentVariable is where the agent's address may be said.
const agentVariable = "SLUICE_AGENT"

// said is what said the agent's address.
func (p *program) said() string {
	if p.agent == os.Getenv(agentVariable) {
		return agentVariable
	}
	return "--agent"
}

// client returns the agent's client. It connects with the first request.
func (p *program) client() (api.AgentClient, error) {
	if p.connection == nil {
		target, options, err := p.far.dial(p.said(), p.agent)
		if err != nil {
			return nil, err
		}
		c, err := grpc.NewClient(target, append(options,
			grpc.WithUnaryInterceptor(p.unary), grpc.WithStreamInterceptor(p.stream),
			// An agent that was started again is found again within a second or so.
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: time.Second,
			}),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(server.MessageLimit), grpc.MaxCallSendMsgSize(server.MessageLimit)))...)
		if err != nil {
			return nil, fmt.Errorf("agent %s: %w", p.agent, err)
		}
		p.connection = c
	}
	return api.NewAgentClient(p.connection), nil
}

// everyPage has a list got page by page: get returns what the page after it is called, "" if there is none.
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
	err := call(p.chosen(ctx), method, request, reply, c, options...)
	switch method {
	case api.Agent_Apply_FullMethodName, api.Agent_Rollback_FullMethodName, api.Agent_Confirm_FullMethodName:
		// gRPC says "connection error" of what it could not send.
		if s := status.Convert(err); s.Code() == codes.Unavailable && !strings.Contains(s.Message(), "connection error: ") && !strings.HasPrefix(s.Message(), server.DataplaneGone) {
			return unanswered{err}
		}
	}
	return err
}

func (p *program) stream(ctx context.Context, desc *grpc.StreamDesc, c *grpc.ClientConn, method string, open grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
	return open(p.chosen(ctx), desc, c, method, options...)
}

// explain returns what went wrong, for a person.
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
		return "the agent went away before it answered: what was asked for may have been kept, or not. Ask for it again: what is kept already is not changed."
	case s.Code() == codes.Unavailable && !strings.HasPrefix(s.Message(), server.DataplaneGone):
		why := s.Message()
		if i := strings.LastIndex(why, ": "); i >= 0 {
			why = strings.Trim(why[i+2:], `"`)
		}
		said := ""
		if p.said() == agentVariable {
			said = ", which SLUICE_AGENT says"
		}
		if _, rest, found := strings.Cut(s.Message(), "authentication handshake failed: "); found {
			return fmt.Sprintf("%s%s: somebody answers, and cannot be believed, or does not believe us: %s.\nSee --ca, --cert and --key.", p.agent, said, strings.Trim(rest, `"`))
		}
		if strings.Contains(why, "permission denied") {
			return fmt.Sprintf("%s%s: permission denied. Only who may write to the agent's socket may ask it: root, or whom its owner lets.", p.agent, said)
		}
		return fmt.Sprintf("no agent answers at %s%s (%s).\nStart one with `sluice agent`, or say with --agent where it listens.", p.agent, said, why)
	case s.Code() == codes.Canceled:
		return "interrupted"
	case s.Code() == codes.InvalidArgument && strings.HasPrefix(s.Message(), server.WhichDataplane):
		return s.Message() + ": say one with --at"
	}
	return s.Message()
}

func problemsOf(told []*api.Problem) object.Errors {
	var all object.Errors
	for _, one := range told {
		all = append(all, &object.Error{Object: object.Key{Kind: one.GetKind(), Name: one.GetName()}, Field: one.GetField(),
			Problem: one.GetProblem(), Found: one.GetFound(), Accepted: one.GetAccepted()})
	}
	return all
}

// problems returns the mistakes that the agent told, with the file and line where each stands.
func (p *program) problems(err error, written []*object.Written) error {
	for _, detail := range status.Convert(err).Details() {
		told, ok := detail.(*api.Problems)
		if !ok {
			continue
		}
		all := problemsOf(told.GetProblems())
		p.registry.Locate(written, all)
		if len(all) > 0 {
			return all
		}
	}
	return err
}

// screen returns the height and width of the terminal that is written to; zeros if it is none.
func (p *program) screen() (lines, columns int) {
	f, ok := p.out.(*os.File)
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
