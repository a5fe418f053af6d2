# Writes OUTPUT, a C++ file with the page's two texts: what comes before the report's JSON and what comes after it.
#   cmake -DPAGE=folder -DLIBRARY=dagre.min.js -DOUTPUT=file.cpp -P embed.cmake
cmake_minimum_required(VERSION 3.25) # "@NAME@" stays text
file(READ "${PAGE}/page.html" page)
file(READ "${PAGE}/page.css" style)
file(READ "${PAGE}/dagre.licence.txt" licence)
file(READ "${LIBRARY}" library)
string(ASCII 1 separator) # in a string of the library, where the page has no control characters
string(REPLACE "${separator}" "\\x01" library "${library}")
set(script "")
foreach(name data layout graph search table details memory timeline keyboard page)
  file(READ "${PAGE}/${name}.js" text)
  string(APPEND script "${text}")
endforeach()
string(REPLACE "@STYLE@" "${style}" page "${page}")
string(REPLACE "@LIBRARY@" "/*\n${licence}*/\n${library}" page "${page}")
string(REPLACE "@SCRIPT@" "${script}" page "${page}")
string(FIND "${page}" "@REPORT@" at)
string(SUBSTRING "${page}" 0 ${at} before)
math(EXPR at "${at} + 8")
string(SUBSTRING "${page}" ${at} -1 after)
file(WRITE "${OUTPUT}" "// Made by tools/command/page/embed.cmake.
namespace tessera::command {
extern const char* const kPageBefore;
extern const char* const kPageAfter;
const char* const kPageBefore = R\"tesserapage(${before})tesserapage\";
const char* const kPageAfter = R\"tesserapage(${after})tesserapage\";
} // namespace tessera::command
")
