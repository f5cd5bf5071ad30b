package report

import "image/color"

// Colours that are told apart by colour-blind readers too (Okabe and Ito, 2008).
var (
	black  = color.RGBA{A: 255}
	grey   = color.RGBA{R: 130, G: 130, B: 130, A: 255}
	orange = color.RGBA{R: 230, G: 159, A: 255}
	green  = color.RGBA{G: 158, B: 115, A: 255}
	red    = color.RGBA{R: 213, G: 94, A: 255}
	blue   = color.RGBA{G: 114, B: 178, A: 255}
	sky    = color.RGBA{R: 86, G: 180, B: 233, A: 255}
	pink   = color.RGBA{R: 204, G: 121, B: 167, A: 255}

	palette = []color.RGBA{blue, red, green, orange, pink, sky, black, grey}
)

// colourOf returns the i-th colour, round and round.
func colourOf(i int) color.RGBA { return palette[i%len(palette)] }
