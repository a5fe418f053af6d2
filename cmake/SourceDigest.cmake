# cmake -DROOT=... -DFOLDERS=a,b -DOUTPUT=... -P SourceDigest.cmake: a C++ file with a digest of the sources that decide what a compile
# makes (codegen/driver/compile_key.h).
string(REPLACE "," ";" FOLDERS "${FOLDERS}")
set(all "")
foreach(folder ${FOLDERS})
  file(GLOB_RECURSE files RELATIVE ${ROOT} ${ROOT}/${folder}/*.cpp ${ROOT}/${folder}/*.h ${ROOT}/${folder}/*.txt ${ROOT}/${folder}/*.json)
  foreach(file ${files})
    file(SHA256 ${ROOT}/${file} digest)
    string(APPEND all "${file} ${digest}\n")
  endforeach()
endforeach()
string(SHA256 digest "${all}")
string(SUBSTRING ${digest} 0 16 digest)
file(WRITE ${OUTPUT} "namespace tessera {\nextern const char* const kSourceDigest;\nconst char* const kSourceDigest = \"${digest}\";\n} // namespace tessera\n")
