#pragma once

#include <string>
#include <vector>

namespace minim::train {

// A page's beginning up to its heading, with the style of pages and plots: it needs no other file,
// is light or dark as the reader's system is, and fits narrow windows.
std::string page_begin(const std::string& title);
std::string page_end();

// Rows of cells as a table that scrolls where it is too wide; the first row is the header. Numbers
// are meant to stand right, so all columns but the first do; the class "prose" is for text. Cells
// are escaped.
std::string table_html(const std::vector<std::vector<std::string>>& rows,
                       const std::string& kind = "");
// The same of cells that are HTML.
std::string table_of_html(const std::vector<std::vector<std::string>>& rows,
                          const std::string& kind = "");

// A heading that opens and closes what is below it, closed at first.
std::string folded_html(const std::string& heading, const std::string& contents);

// At most `most` code points of a text, with an ellipsis where it goes on.
std::string shortened(const std::string& text, size_t most);

}  // namespace minim::train
