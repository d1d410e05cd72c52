package rtmp

import (
	"errors"
	"fmt"
	"strings"
)

// Refusal is why a server refuses a client: our own server, or another one.
type Refusal struct {
	// Code is the code of the server, such as NetStream.Publish.BadName; "" = none, or an unsafe one.
	Code string
	// Reason is the description of our own server. Those of others are left out, because they may
	// repeat the stream key.
	Reason string
}

func (r *Refusal) Error() string {
	if r.Reason != "" {
		return r.Reason
	}
	return "the server refused the connection: " + r.Code
}

// command is a command or the reply to one.
type command struct {
	name      string
	number    int // ties a reply to its command
	arguments []any
}

func parseCommand(body []byte) (command, error) {
	if len(body) > maxCommand {
		return command{}, LimitError(fmt.Sprintf("a command of %d bytes; %d are allowed", len(body), maxCommand))
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

// status returns the level and the code in the arguments of a command.
func (c command) status() (level, code string) {
	for _, a := range c.arguments {
		if o, ok := a.(object); ok && o.get("code") != nil {
			return o.text("level"), o.text("code")
		}
	}
	return "", ""
}

func (c command) refusal() error {
	_, code := c.status()
	other := func(r rune) bool { return r != '.' && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') }
	if !strings.HasPrefix(code, "Net") || len(code) > 64 || strings.ContainsFunc(code, other) {
		code = ""
	}
	return &Refusal{Code: code}
}

// isError reports whether a command says that the stream has failed.
func (c command) isError() bool {
	level, _ := c.status()
	return c.name == "close" || c.name == "onStatus" && level == "error"
}

func (c *Conn) sendCommand(stream uint32, name string, number int, arguments ...any) error {
	body := appendAMF(appendAMF(nil, name, float64(number)), arguments...)
	return c.send(commandChunks, stream, message{kind: messageCommand, body: body}, nil)
}

// status returns the object with the result of a command.
func status(level, code, text string) object {
	return object{{"level", level}, {"code", code}, {"description", text}}
}
