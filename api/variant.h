// What a session compiled, for those who look into it: the command, tests. Not installed.
#pragma once
#include "api/session.h"
#include "api/session_variant.h"
#include "codegen/driver/compile.h"
