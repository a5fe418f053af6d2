#pragma once
#include "standard.h"
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/Module.h>
