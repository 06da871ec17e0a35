#include "train/plot.h"

namespace minim::train {

std::string plot_style() {
  // Okabe and Ito's colours, which those who see fewer tell apart too; lighter ones on dark paper.
  return R"(:root { --paper: #fff; --ink: #1c1e21; --s0: #0072b2; --s1: #d55e00; --s2: #009e73;
  --s3: #b5578f; --s4: #b8860b; --s5: #56b4e9; }
@media (prefers-color-scheme: dark) { :root { --paper: #18191a; --ink: #e4e6eb; --s0: #4aa3df;
  --s1: #f08a3c; --s2: #2cc295; --s3: #e39cc4; --s4: #e0b040; --s5: #9bd5f7; } }
.plot { width: 100%; max-width: 620px; font: 12px system-ui, sans-serif; }
.plot.sample { width: 40px; height: 14px; vertical-align: -2px; margin-right: 0.6em; }
.plot text { fill: currentColor; }
.plot .name { paint-order: stroke; stroke: var(--paper); stroke-width: 3px; }
.plot .title { font-size: 14px; font-weight: 600; }
@media (max-width: 480px) { .plot { font-size: 13.5px; } }
.plot .tick, .plot .quiet { opacity: 0.65; }
.plot .grid { stroke: currentColor; opacity: 0.12; }
.plot .axis { stroke: currentColor; fill: none; }
.plot .guide { stroke: currentColor; opacity: 0.4; fill: none; stroke-dasharray: 4 3; }
.plot .s0 { fill: var(--s0); stroke: var(--s0); }
.plot .s1 { fill: var(--s1); stroke: var(--s1); }
.plot .s2 { fill: var(--s2); stroke: var(--s2); }
.plot .s3 { fill: var(--s3); stroke: var(--s3); }
.plot .s4 { fill: var(--s4); stroke: var(--s4); }
.plot .s5 { fill: var(--s5); stroke: var(--s5); }
.plot .curve, .plot .bar { fill: none; stroke-width: 1.8; }
.plot .band { fill-opacity: 0.16; stroke-opacity: 0.55; stroke-width: 0.7; }
.plot .mark { stroke: var(--paper); stroke-width: 1; }
.plot .leader { stroke: currentColor; opacity: 0.5; stroke-width: 0.8; }
.plot .dot { stroke: none; fill-opacity: 0.55; }
.plot .d1 { stroke-dasharray: 7 3; }
.plot .d2 { stroke-dasharray: 2 2.5; }
.plot .d3 { stroke-dasharray: 9 3 2 3; }
.plot .d4 { stroke-dasharray: 12 4; }
.plot .d5 { stroke-dasharray: 4 2; }
)";
}

}  // namespace minim::train
