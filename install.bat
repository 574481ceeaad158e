@echo off
rem Makes .venv and installs the workbench into it. Needs Python 3.11 to 3.13, nothing else.
rem Options are those of scripts\install.py: install.bat --dev
setlocal
cd /d "%~dp0"
set "PYTHON="
for %%v in (3.13 3.12 3.11) do (
    if not defined PYTHON (
        py -%%v --version >nul 2>&1
        if not errorlevel 1 set "PYTHON=py -%%v"
    )
)
if not defined PYTHON (
    python --version >nul 2>&1
    if not errorlevel 1 set "PYTHON=python"
)
if not defined PYTHON (
    echo Python was not found: install version 3.13 from https://www.python.org/downloads/ and run install.bat again.
    goto failed
)
%PYTHON% scripts\install.py %*
if errorlevel 1 goto failed
echo Start the page with run.bat
exit /b 0

:failed
echo Installing failed. The lines above say why.
pause
exit /b 1
