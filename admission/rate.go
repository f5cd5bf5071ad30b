package admission

import (
	"math"
	"strconv"
	"time"
)

// ratePers are the times in which people count.
var ratePers = []struct {
	per  time.Duration
	word string
}{{time.Second, "second"}, {time.Minute, "minute"}, {time.Hour, "hour"}, {24 * time.Hour, "day"}}

// Words writes a rate of things, such as "2.5 jobs a second", "1 job a day": in the shortest of second, minute, hour and day
// in which it is one at least, to three digits.
func (r TokensPerSecond) Words(thing string) string {
	amount, word := 0.0, ""
	for _, p := range ratePers {
		amount, word = threeDigits(float64(r)*p.per.Seconds()), p.word
		if amount >= 1 {
			break
		}
	}
	return counted(strconv.FormatFloat(amount, 'f', -1, 64), thing) + " a" + article(word) + " " + word
}

// Words writes what refills, "100 tokens a second", "7 tokens in 1m30s".
func (l Limit) Words() string {
	tokens := counted(strconv.FormatInt(int64(l.Tokens), 10), "token")
	if !l.Window.IsZero() {
		return tokens + l.Window.Words()
	}
	for _, p := range ratePers {
		if p.per == l.Per {
			return tokens + " a" + article(p.word) + " " + p.word
		}
	}
	return tokens + " in " + l.Per.String()
}

func counted(amount, thing string) string {
	if amount != "1" {
		thing += "s"
	}
	return amount + " " + thing
}

// article ends "a" before a word.
func article(word string) string {
	if word == "hour" {
		return "n"
	}
	return ""
}

// threeDigits rounds to three digits, and no whole number to fewer than it has.
func threeDigits(x float64) float64 {
	if x >= 100 || x <= 0 {
		return math.Round(x)
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(x)))
	return math.Round(x*scale) / scale
}
