#include "train/page.h"

#include <fmt/format.h>

#include "train/plot.h"

namespace minim::train {

namespace {

constexpr const char* page_style = R"(:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 1080px; margin: 2rem auto; padding: 0 1rem;
  color: var(--ink); background: var(--paper); }
h1 { font-size: 1.4rem; overflow-wrap: anywhere; } h2 { font-size: 1.05rem; margin-top: 2.2rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: 0.25rem 0.65rem; text-align: right; border-bottom: 1px solid #8884;
  vertical-align: top; }
th { font-weight: 600; white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.prose th, .prose td { text-align: left; white-space: normal; }
.prose td + td { min-width: 3rem; } .prose td:last-child { min-width: 16rem; }
.named td:first-child { white-space: normal; min-width: 8rem; padding-left: 50px;
  text-indent: -50px; }
.last-left th:last-child, .last-left td:last-child { text-align: left; }
.wide { overflow-x: auto; } .unseen { visibility: hidden; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 480px), 1fr));
  gap: 1.2rem 0.8rem; align-items: start; }
.tiles { display: flex; flex-wrap: wrap; gap: 0.4rem 2.4rem; margin: 1rem 0; padding: 0; }
.tiles div { min-width: 6rem; } .tiles b { display: block; font-size: 1.35rem; font-weight: 600; }
.bar { display: block; height: 6px; margin: 3px 0; background: var(--s0); min-width: 1px; }
.bar.said { background: none; box-sizing: border-box; border: 1px solid currentColor; }
.bars { width: 14rem; padding-top: 0.5rem; }
summary { font-size: 1.05rem; font-weight: 600; margin-top: 1.4rem; cursor: pointer; }
.small, .tiles span { font-size: 0.85rem; opacity: 0.75; }
@media print { .wide { overflow: visible; } }
)";

}  // namespace

std::string page_begin(const std::string& title) {
  return fmt::format(
      "<!doctype html>\n<html lang='en'>\n<head>\n<meta charset='utf-8'>\n"
      "<meta name='viewport' content='width=device-width, initial-scale=1'>\n"
      "<title>{0}</title>\n<style>\n{1}{2}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
      escape_html(title), plot_style(), page_style);
}

std::string page_end() {
  return "</body>\n</html>\n";
}

std::string table_of_html(const std::vector<std::vector<std::string>>& rows,
                          const std::string& kind) {
  std::string table = fmt::format("<div class='wide'><table class='{}'>\n", kind);
  for (const auto& row : rows) {
    const char* tag = &row == rows.data() ? "th" : "td";
    table += "<tr>";
    for (const std::string& cell : row)
      table += fmt::format("<{0}>{1}</{0}>", tag, cell);
    table += "</tr>\n";
  }
  return table + "</table></div>\n";
}

std::string table_html(const std::vector<std::vector<std::string>>& rows, const std::string& kind) {
  auto escaped = rows;
  for (auto& row : escaped)
    for (std::string& cell : row)
      cell = escape_html(cell);
  return table_of_html(escaped, kind);
}

std::string folded_html(const std::string& heading, const std::string& contents) {
  return fmt::format("<details>\n<summary>{}</summary>\n{}</details>\n", escape_html(heading),
                     contents);
}

std::string shortened(const std::string& text, size_t most) {
  size_t points = 0;
  for (size_t i = 0; i < text.size(); ++i)
    if ((uint8_t(text[i]) & 0xc0) != 0x80 && points++ == most) return text.substr(0, i) + "…";
  return text;
}

}  // namespace minim::train
