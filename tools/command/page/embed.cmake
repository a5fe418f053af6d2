# Writes OUTPUT, a C++ file with two texts of the page of a report and of that of two: what comes before the JSON and what
# comes after it.
#   cmake -DPAGE=folder -DLIBRARY=dagre.min.js -DOUTPUT=file.cpp -P embed.cmake
cmake_minimum_required(VERSION 3.25) # "@NAME@" stays text
file(READ "${PAGE}/page.css" style)
file(READ "${PAGE}/dagre.licence.txt" licence)
file(READ "${LIBRARY}" library)
string(ASCII 1 separator) # in a string of the library, where the page has no control characters
string(REPLACE "${separator}" "\\x01" library "${library}")
set(texts "")
function(add_page symbol file)
  file(READ "${PAGE}/${file}" page)
  set(script "")
  foreach(name ${ARGN})
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
  set(texts "${texts}extern const char* const k${symbol}Before;
extern const char* const k${symbol}After;
const char* const k${symbol}Before = R\"tesserapage(${before})tesserapage\";
const char* const k${symbol}After = R\"tesserapage(${after})tesserapage\";
" PARENT_SCOPE)
endfunction()
add_page(Page page.html data layout graph search table details memory timeline keyboard page)
add_page(Diff diff.html data table diff)
file(WRITE "${OUTPUT}" "// Made by tools/command/page/embed.cmake.
namespace tessera::command {
${texts}} // namespace tessera::command
")
