package rtmp

import (
	"errors"
	"fmt"
	"strings"
)

// Refusal is why a server does not do what a client asks for: ours, or one that we ask.
type Refusal struct {
	// Code is the code that the server gave, such as NetStream.Publish.BadName; "" = none that
	// can be shown.
	Code string
	// Reason is what our server told the client. What another server told us is left out,
	// because it may repeat the stream key.
	Reason string
}

func (r *Refusal) Error() string {
	if r.Reason != "" {
		return r.Reason
	}
	return "the server refuses: " + r.Code
}

// command is what one end asks of the other, or the answer.
type command struct {
	name      string
	number    int // ties an answer to its command
	arguments []any
}

func parseCommand(body []byte) (command, error) {
	if len(body) > maxCommand {
		why := fmt.Sprintf("a command of %d bytes; %d are allowed", len(body), maxCommand)
		return command{}, LimitError(why)
	}
	values, err := readAMF(body)
	if err != nil {
		return command{}, fmt.Errorf("a command can't be read: %w", err)
	}
	if len(values) < 2 {
		return command{}, errors.New("a command without a number")
	}
	name, _ := values[0].(string)
	number, _ := values[1].(float64)
	return command{name, int(number), values[2:]}, nil
}

// argument returns an argument that is a string.
func (c command) argument(i int) string {
	if i >= len(c.arguments) {
		return ""
	}
	text, _ := c.arguments[i].(string)
	return text
}

// status returns the level and the code that a command tells.
func (c command) status() (level, code string) {
	for _, a := range c.arguments {
		if o, ok := a.(object); ok && o.get("code") != nil {
			return o.text("level"), o.text("code")
		}
	}
	return "", ""
}

// refusal returns the error of a command that says no.
func (c command) refusal() error {
	_, code := c.status()
	other := func(r rune) bool { return r != '.' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if !strings.HasPrefix(code, "Net") || len(code) > 64 || strings.ContainsFunc(code, other) {
		code = ""
	}
	return &Refusal{Code: code}
}

// isError reports whether a command says that something about the stream has failed.
func (c command) isError() bool {
	level, _ := c.status()
	return c.name == "close" || c.name == "onStatus" && level == "error"
}

// sendCommand sends a command of a message stream, or an answer.
func (c *Conn) sendCommand(stream uint32, name string, number int, arguments ...any) error {
	body := appendAMF(appendAMF(nil, name, float64(number)), arguments...)
	return c.send(commandChunks, stream, message{kind: messageCommand, body: body}, nil)
}

// status is the object that says how a command went.
func status(level, code, text string) object {
	return object{{"level", level}, {"code", code}, {"description", text}}
}
