// Package graves keeps dead letters in order, and knows which is to go where there are too many: one of whoever has the most.
package graves
