module slipway.dev/pause

go 1.26.0
