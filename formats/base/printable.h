// Text from outside (names, reasons, paths, metadata), made safe for a terminal, a log or JSON.
//
// Escape sequences in a name could move the cursor, set the window's title or hide what follows.
// Printable UTF-8 stays as it is; everything else is shown as an escape:
//   \n \r \t          the usual names
//   \x1b              another control character of ASCII, or a byte that is not UTF-8
//   \u{9b} \u{202e}   C1 controls, line separators, invisible and text-reordering characters
#pragma once

#include <string>
#include <string_view>

namespace ckpt::base {

// The text, escaped, in at most `bytes_max` bytes. No character or escape is cut; "..." follows
// if a part is left out, because refused input may have megabytes.
std::string printable(std::string_view text, size_t bytes_max = 128);

// The whole text, escaped.
std::string escaped(std::string_view text);

// Our own lines, in case unescaped texts from outside are in them: newlines and tabs stay, all
// other control characters are escaped. The last guard before a terminal.
std::string escaped_lines(std::string_view lines);
// The same, and colours (ESC [ digits m) stay.
std::string escaped_screen(std::string_view screen);

// A JSON document (valid UTF-8) with the characters that JSON allows in a string but a terminal
// would obey written as \u009b. It says the same as before.
std::string escaped_json(std::string document);

// Our own message that lists many objects: its first `bytes_max` bytes, never half a character, and
// "..." if there is more.
std::string shortened(std::string text, size_t bytes_max);

}  // namespace ckpt::base
